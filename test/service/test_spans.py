# SPDX-License-Identifier: Apache-2.0
"""Spans of requests, from the service through ramet-notify to a collector.

The collector decodes with OTLP's schema, and refuses what the schema lacks.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Callable, Iterator

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from conftest import Service, made, refused

STARTER = os.environ.get("NOTIFY_STARTER", "build/test/notify/notify_starter")
PROGRAM = os.environ.get("NOTIFY_PROGRAM", "build/orchestrator/events/ramet-notify")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
JOINED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


def with_base64(value: dict[str, Any]) -> dict[str, Any]:
    """Writes ids as protobuf's JSON has them; OTLP's has them in hex."""
    for name in {"traceId", "spanId", "parentSpanId"} & set(value):
        value[name] = base64.b64encode(bytes.fromhex(value[name])).decode()
    return value


def decode(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest()
    ParseDict(json.loads(body, object_hook=with_base64), request)
    (resource,) = request.resource_spans
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert names["service.name"] == "ramet"
    (scope,) = resource.scope_spans
    return list(scope.spans)


class Collector:
    """Answers with the statuses in `answers`, then with 200; keeps the requests that it accepted."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.bodies: queue.Queue[bytes] = queue.Queue()
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = collector.answers.pop(0) if collector.answers else 200
                if status == 200:
                    collector.bodies.put(body)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def next(self) -> Span:
        if not self.spans:
            self.spans = decode(self.bodies.get(timeout=60))
        return self.spans.pop(0)

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


Traced = tuple[Service, httpx.Client]


@pytest.fixture
def traced(
    sockets: tuple[socket.socket, socket.socket], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    fd = sockets[0].fileno()
    service = Service(tmp_path_factory.mktemp("spans"), f"spans={fd}", agent=False, fds=(fd,))
    with service.client() as http:
        yield service, http
    service.stop()


@pytest.fixture
def notify(
    sockets: tuple[socket.socket, socket.socket], collector: Collector
) -> Iterator[Callable[[], None]]:
    """Starts ramet-notify."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [STARTER, PROGRAM, "0", f"--otlp_url={collector.url}"]
        started.append(subprocess.Popen(command, stdin=sockets[1].fileno()))

    yield start
    for process in started:
        process.kill()
        process.wait()


def attributes(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_spans_of_a_sandbox_join_the_trace_of_its_client(
    traced: Traced, notify: Callable[[], None], collector: Collector
) -> None:
    http = traced[1]
    notify()
    http.headers.update(JOINED)
    box = made(http)
    sandbox = box.rpartition("/")[2]
    http.post(f"{box}/exec", json={"code": "out hello"}).raise_for_status()
    children = http.post(f"{box}/fork", json={"n": 2}).json()["children"]
    space = http.post(f"{box}/freeze").json()["space_id"]
    resumed = http.post(f"/v1/spaces/{space}/resume").json()["id"]
    spans = [collector.next() for _ in range(7)]

    names = ["create", "exec", "fork", "child", "child", "freeze", "resume"]
    assert [span.name for span in spans] == names
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert len({span.span_id for span in spans}) == 7
    create, exec_, fork, first, second, freeze, resume = spans
    of_requests = [create, exec_, fork, freeze, resume]
    assert {span.parent_span_id.hex() for span in of_requests} == {PARENT}
    assert {span.kind for span in of_requests} == {Span.SPAN_KIND_SERVER}
    links = [(one.trace_id.hex(), one.span_id) for one in fork.links]
    assert links == [(TRACE, first.span_id), (TRACE, second.span_id)]
    assert first.parent_span_id == second.parent_span_id == fork.span_id
    assert first.kind == second.kind == Span.SPAN_KIND_INTERNAL
    assert [attributes(one)["ramet.sandbox"] for one in (first, second)] == children
    for span in (create, exec_, fork, freeze):
        assert attributes(span)["ramet.sandbox"] == sandbox
    assert attributes(freeze)["ramet.space"] == attributes(resume)["ramet.space"] == space
    assert attributes(resume)["ramet.sandbox"] == resumed
    assert attributes(create)["http.response.status_code"] == 201
    for span in spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert not span.HasField("status")


def test_other_spans_begin_a_trace(traced: Traced, notify: Callable[[], None], collector: Collector) -> None:
    http = traced[1]
    notify()
    for value in ("nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more"):
        made(http)
        span = collector.next()
        assert not span.parent_span_id and span.trace_id.hex() not in ("0" * 32, TRACE)
        assert http.post("/v1/sandboxes", headers={"traceparent": value}).status_code == 201
        other = collector.next()
        assert not other.parent_span_id and other.trace_id != span.trace_id


def test_trace_that_its_client_does_not_record_has_no_spans(
    traced: Traced, notify: Callable[[], None], collector: Collector
) -> None:
    http = traced[1]
    notify()
    assert http.post("/v1/sandboxes", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}).status_code == 201
    http.get("/v1/sandboxes").raise_for_status()
    refused(http.post(f"/v1/spaces/spc_{'0' * 32}/resume", headers=JOINED), 404, "not_found")
    span = collector.next()
    assert span.name == "resume" and attributes(span)["http.response.status_code"] == 404


def test_failed_request_is_sent_again(
    traced: Traced, notify: Callable[[], None], collector: Collector
) -> None:
    collector.answers = [503]
    notify()
    made(traced[1])
    assert collector.next().name == "create"


def test_failure_of_the_service_is_an_error(
    traced: Traced, notify: Callable[[], None], collector: Collector
) -> None:
    service, http = traced
    notify()
    box = made(http)
    service.tell("fault fork 1")
    refused(http.post(f"{box}/fork", json={"n": 1}), 503, "fork_failed")
    create, fork = collector.next(), collector.next()
    assert fork.status.code == Status.STATUS_CODE_ERROR and not fork.links
    assert not create.HasField("status")


def test_spans_are_dropped_when_nobody_reads_them(traced: Traced) -> None:
    service, http = traced
    box = made(http)
    while service.metrics()["ramet_spans_dropped_total"] == 0:
        for _ in range(100):
            refused(http.post(f"{box}/exec", json={"code": "", "context": "x"}), 404, "no_such_context")
