# SPDX-License-Identifier: Apache-2.0
"""Retries, keys over plain http, certificates, and the splitting of lines."""

from __future__ import annotations

import email.utils
import re
import ssl
import subprocess
import sys
import threading
import time
import types
import warnings
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Callable, Iterator

import httpx
import pytest

import ramet
from ramet import Client, Sandbox
from ramet._transport import _lines

SBX = "sbx_" + "0" * 32
SPC = "spc_" + "0" * 32


class Service:
    """Returns or raises one of `answers` for each request, and repeats the last one."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more: Any) -> Client:
        return Client(transport=httpx.MockTransport(self), **more)

    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.requests]


def refusal(status: int, retry_after: str | None = "3", code: str = "busy") -> httpx.Response:
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    return httpx.Response(status, json={"error": "not now", "code": code}, headers=headers)


def good() -> httpx.Response:
    one = {"id": SBX, "state": "ready", "children": [SBX], "added": [], "removed": []}
    return httpx.Response(200, json=one | {"modified": []})


BROKEN = httpx.RemoteProtocolError("Server disconnected without sending a response.")

# Requests, and whether a repetition is harmless.
ASK: dict[str, tuple[Callable[[Client], object], bool]] = {
    "create": (lambda c: c.create_sandbox(vcpus=2), True),
    "fork": (lambda c: c.fork_sandbox(SBX, 2), True),
    "resume": (lambda c: c.resume_space(SPC), True),
    "get": (lambda c: c.get_sandbox(SBX), True),
    "write": (lambda c: c.write_file(SBX, "/f", b"x" * 600_000), True),
    "update": (lambda c: c.update_sandbox(SBX, timeout_seconds=60), True),
    "delete": (lambda c: c.delete_sandbox(SBX), False),
    "interrupt": (lambda c: c.interrupt(SBX), False),
    "merge": (lambda c: c.merge_sandbox(SBX, SBX), False),
    "exec": (lambda c: list(c.exec_stream(SBX, "x")), False),
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces sleep; collects the requested waits in seconds."""
    made: list[float] = []
    monkeypatch.setattr("ramet._io.time.sleep", made.append)
    monkeypatch.setattr("ramet._transport.random.uniform", lambda low, high: low)
    return made


@pytest.mark.parametrize("name", ASK)
def test_refused_request_is_retried(name: str, waits: list[float]) -> None:
    ask, _ = ASK[name]
    end = httpx.Response(200, text='{"type":"exit","data":0,"seq":1,"ts":1}\n')
    service = Service(refusal(429), refusal(429, "0"), end if name == "exec" else good())
    ask(service.client())
    assert waits == [3, 0.1]
    assert len({(r.method, r.url, r.content) for r in service.requests}) == 1
    keyed = name in ("create", "fork", "resume")
    assert len(set(service.keys())) == 1 and (service.keys()[0] is not None) == keyed


@pytest.mark.parametrize("name", ASK)
def test_503_is_retried_if_repetition_is_harmless(name: str, waits: list[float]) -> None:
    ask, safe = ASK[name]
    service = Service(refusal(503), good())
    if safe or name == "delete":
        ask(service.client())
    else:
        with pytest.raises(ramet.Unavailable):
            ask(service.client())
    assert waits == ([3] if safe or name == "delete" else [])


@pytest.mark.parametrize("name", ASK)
def test_broken_connection_is_retried_if_repetition_is_harmless(
    name: str, waits: list[float]
) -> None:
    ask, safe = ASK[name]
    # The service restarts in between.
    service = Service(BROKEN, httpx.ConnectError("refused"), httpx.ReadError("reset"), good())
    if safe:
        ask(service.client())
    else:
        with pytest.raises(ramet.ConnectionFailed):
            ask(service.client())
    assert waits == ([0.5, 1, 2] if safe else [])
    assert len(set(service.keys())) == 1


def test_retried_freeze_keeps_its_key(waits: list[float]) -> None:
    frozen = httpx.Response(200, json={"space_id": SPC})
    space: dict[str, Any] = {"id": SPC, "state": "frozen", "created_at": "2026-01-31T23:59:59.123Z"}
    space |= {"size_bytes": 1, "ram_mib": 512, "template": "default", "metadata": {}}
    service = Service(BROKEN, frozen, httpx.Response(200, json=space))
    assert service.client().freeze_sandbox(SBX).id == SPC
    first, again, _ = service.keys()
    assert first is not None and first == again


def test_each_create_has_a_unique_idempotency_key(waits: list[float]) -> None:
    service = Service(good())
    client = service.client()
    for _ in range(3):
        Sandbox(client=client)
    client.create_sandbox(idempotency_key="mine")
    keys = service.keys()
    assert len(set(keys)) == 4 and keys[3] == "mine"
    assert all(re.fullmatch("[!-~]{1,255}", key or "") for key in keys)


def test_attempt_is_the_first_until_one_may_have_had_an_effect(waits: list[float]) -> None:
    refusals = refusal(503, "1"), refusal(429, "1")
    service = Service(*refusals, BROKEN, refusal(503, "1"), good())
    client = service.client()
    Sandbox(client=client)
    client.create_sandbox(idempotency_key="mine")
    sent = [request.headers.get("idempotency-attempt") for request in service.requests]
    assert sent == ["first"] * 3 + [None] * 3


def test_refusal_of_a_proxy_leaves_no_first_attempt(waits: list[float]) -> None:
    service = Service(httpx.Response(503, headers={"retry-after": "1"}), good())
    Sandbox(client=service.client())
    sent = [request.headers.get("idempotency-attempt") for request in service.requests]
    assert sent == ["first", None]


def test_create_in_flight_is_waited_for(waits: list[float]) -> None:
    service = Service(BROKEN, refusal(409, "1", "idempotency_key_in_use"), good())
    assert service.client().create_sandbox().id == SBX
    assert waits == [0.5, 1]
    with pytest.raises(ramet.Conflict):
        Service(refusal(409, "1", "busy")).client().create_sandbox()


def test_total_wait_is_bounded(waits: list[float]) -> None:
    service = Service(refusal(429, "4"))
    with pytest.raises(ramet.CapReached) as caught:
        service.client().get_sandbox(SBX)
    assert caught.value.retry_after == 4
    assert waits == [4, 4]
    waits.clear()
    with pytest.raises(ramet.CapReached):
        service.client(retry_seconds=13).get_sandbox(SBX)
    assert waits == [4, 4, 4]
    waits.clear()
    with pytest.raises(ramet.CapReached):
        service.client(retry_seconds=0).get_sandbox(SBX)
    with pytest.raises(ramet.ConnectionFailed):
        Service(BROKEN).client(retry_seconds=0).get_sandbox(SBX)
    assert service.client().healthz() is False
    assert waits == []


@pytest.mark.parametrize("failure", [httpx.ConnectError("no"), httpx.ReadTimeout("slow")])
def test_missing_service_and_read_timeout_are_not_retried(
    waits: list[float], failure: Exception
) -> None:
    with pytest.raises(ramet.ConnectionFailed):
        Service(failure).client().create_sandbox()
    assert waits == []


@pytest.mark.parametrize("value", [None, "", "soon", "nan", "inf", "-1", "1e400"])
def test_invalid_retry_after_is_not_retried(waits: list[float], value: str | None) -> None:
    with pytest.raises(ramet.Unavailable) as caught:
        Service(refusal(503, value)).client().get_sandbox(SBX)
    assert caught.value.retry_after is None
    assert waits == []


def test_retry_after_may_be_a_date(waits: list[float]) -> None:
    then = email.utils.formatdate(time.time() + 5, usegmt=True)
    past = email.utils.formatdate(0, usegmt=True)
    Service(refusal(503, then), refusal(503, past), good()).client().get_sandbox(SBX)
    assert 0 < waits[0] <= 5 and waits[1] == 0.1


def test_broken_stream_is_not_restarted(waits: list[float]) -> None:
    def broken() -> Iterator[bytes]:
        yield b'{"type":"stdout","data":"a","seq":1,"ts":1}\n'
        raise httpx.ReadError("reset")

    service = Service(httpx.Response(200, content=broken()))
    with pytest.raises(ramet.ConnectionFailed):
        service.client().replay(SBX)
    assert waits == [] and len(service.requests) == 1


# --- keys over plain http ---


@pytest.mark.parametrize(
    "host", ["http://10.1.2.3:7070", "http://ramet.example", "http://[2001:db8::1]:7070"]
)
def test_key_over_plain_http_warns_once(host: str) -> None:
    with pytest.warns(ramet.PlainHttpWarning, match="over plain http") as caught:
        client = Service(good()).client(host=host, api_key="secret")
        client.get_sandbox(SBX)
        client.get_sandbox(SBX)
    assert len(caught) == 1
    assert "secret" not in str(caught[0].message)


def test_warning_points_at_the_caller() -> None:
    with pytest.warns(ramet.PlainHttpWarning) as caught, pytest.raises(ramet.ConnectionFailed):
        Sandbox(host="http://ramet.invalid:9", api_key="secret")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("http://127.0.0.1:7070", {"api_key": "k"}),
        ("http://127.1.2.3:7070", {"api_key": "k"}),
        ("http://[::1]:7070", {"api_key": "k"}),
        ("http://localhost:7070", {"api_key": "k"}),
        ("https://ramet.example", {"api_key": "k"}),
        ("http://ramet.example", {}),
        ("http://ramet.example", {"api_key": "k", "allow_plain_http": True}),
    ],
)
def test_safe_connections_do_not_warn(host: str, more: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Service(good()).client(host=host, **more)


# --- certificates ---


class Ok(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1; its key is in key.pem beside it."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", str(key), "-out", str(cert)]
        + ["-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return cert


@pytest.fixture
def tls(authority: Path) -> Iterator[str]:
    """The URL of a server with that certificate."""
    server = HTTPServer(("127.0.0.1", 0), Ok)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, authority.with_name("key.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_custom_certificate_authority_is_trusted(
    tls: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(tls, ca_file=authority) as client:
        assert client.list_sandboxes() == []
    with Client(tls) as client, pytest.raises(ramet.ConnectionFailed, match="CERTIFICATE_VERIFY"):
        client.list_sandboxes()
    monkeypatch.setenv("RAMET_CA_FILE", str(authority))
    with Client(tls) as client:
        assert client.list_sandboxes() == []


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_file_without_certificates_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content:
        path.write_bytes(content)
    with pytest.raises(ramet.ConnectionFailed, match="ca.pem.*cannot be used"):
        Client("https://ramet.example", ca_file=path)


# --- lines ---


class Counted(bytes):
    """Bytes that count how many bytes are copied when others are prepended."""

    copied = 0

    def __radd__(self, before: bytes) -> "Counted":
        Counted.copied += len(before)
        return Counted(bytes(before) + bytes(self))


def test_long_line_is_joined_once() -> None:
    chunks = [Counted(b"x" * 100) for _ in range(1000)]
    Counted.copied = 0
    assert list(_lines([*chunks, b"\n", b"y\n"])) == ["x" * 100_000, "y"]
    assert Counted.copied <= 100_000


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_do_not_depend_on_chunk_boundaries(size: int) -> None:
    text = "\n\nfirst\n \nsecond \u2028 still\r\nlast".encode()
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(_lines(chunks)) == ["first", "second \u2028 still\r", "last"]
    assert list(_lines([b"", b"\n", b""])) == []


# --- traces ---


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traces(service: Service) -> list[str | None]:
    return [request.headers.get("traceparent") for request in service.requests]


def test_requests_carry_the_traceparent_of_the_caller() -> None:
    service = Service(good())
    client = service.client(traceparent=TRACE)
    client.get_sandbox(SBX)
    client.fork_sandbox(SBX)
    client.write_file(SBX, "/x", b"x")
    assert traces(service) == [TRACE] * 3
    given: list[str | None] = [TRACE, None]
    service = Service(good())
    client = service.client(traceparent=lambda: given.pop(0))
    client.get_sandbox(SBX)
    client.get_sandbox(SBX)
    assert traces(service) == [TRACE, None]


class Propagator:
    """OpenTelemetry's, with a span."""

    def inject(self, headers: dict[str, str]) -> None:
        headers["traceparent"] = TRACE
        headers["tracestate"] = "vendor=1"


def test_requests_carry_the_span_of_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(good())
    service.client().get_sandbox(SBX)
    module = types.ModuleType("opentelemetry.trace.propagation.tracecontext")
    setattr(module, "TraceContextTextMapPropagator", Propagator)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    service.client().get_sandbox(SBX)  # it may be installed, but is not used
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.ModuleType("opentelemetry.trace"))
    service.client().get_sandbox(SBX)
    service.client(traceparent=lambda: None).get_sandbox(SBX)
    assert traces(service) == [None, None, TRACE, None]
    assert service.requests[2].headers["tracestate"] == "vendor=1"


def test_retried_request_keeps_its_trace(waits: list[float]) -> None:
    given = [TRACE]
    service = Service(BROKEN, good())
    service.client(traceparent=given.pop).get_sandbox(SBX)
    assert traces(service) == [TRACE, TRACE]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda sbx: sbx.run_code(b"1"), "code cannot be sent as JSON: bytes is not text"),
        (lambda sbx: sbx.run_code("\ud800"), "code cannot be sent as JSON: it has half"),
        (lambda sbx: sbx.run_code("1", env={"A": float("nan")}), "env cannot be sent as JSON"),
        (lambda sbx: sbx.update(metadata={"a": object()}), "metadata cannot be sent as JSON"),
        (lambda sbx: sbx.processes.start(["\udc80"]), "argv cannot be sent as JSON"),
        (lambda sbx: sbx.pty.create("bash", env={"a": "\ud800"}), "env cannot be sent as JSON"),
        (lambda sbx: sbx.processes.get("\ud800"), "has no UTF-8 form"),
        (lambda sbx: sbx._client.list_sandboxes(metadata={"a": object()}), "a cannot be sent"),
        (lambda sbx: sbx._client.freeze_sandbox("a", idempotency_key="\u00e9"), "header cannot be"),
    ],
)
def test_values_without_a_form_on_the_wire_are_bad_requests(
    work: Callable[[ramet.Sandbox], object], message: str
) -> None:
    sent: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        return httpx.Response(201, json={"id": "1", "state": "ready"})

    sbx = ramet.Sandbox(client=ramet.Client(transport=httpx.MockTransport(handle)))
    with pytest.raises(ramet.BadRequest, match=message):
        work(sbx)
    assert sent == ["/v1/sandboxes"]


@pytest.mark.parametrize("key", ["\u00e9", "rk_1\n", "rk 1"])
def test_key_that_no_header_carries_is_unauthorized(key: str) -> None:
    with pytest.raises(ramet.Unauthorized, match="the API key has") as failed:
        ramet.Client(api_key=key)
    assert key not in str(failed.value)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_request_of_a_program_that_is_ended_is_undone(end: type[BaseException]) -> None:
    log: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers.get("idempotent-replay") == "only":
            return good()
        log.append(f"{request.method} {request.url.path}")
        if request.method == "POST":
            raise end
        return httpx.Response(204)

    with pytest.raises(end):
        Client(transport=httpx.MockTransport(answer)).create_sandbox()
    assert log == ["POST /v1/sandboxes", f"DELETE /v1/sandboxes/{SBX}"]
