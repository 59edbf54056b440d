# SPDX-License-Identifier: Apache-2.0
"""The SDK against fake answers: the requests that it sends, and the values that it returns."""

from __future__ import annotations

import base64
import html
import json
import os
import subprocess
import sys
import threading
import types
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Iterator

import httpx
import pytest

import ramet
from ramet import Client, Sandbox

SBX = "sbx_" + "0" * 32
Handler = Callable[[httpx.Request], httpx.Response]


def client_for(handler: Handler) -> Client:
    return Client(transport=httpx.MockTransport(handler))


def ndjson(*events: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, content="".join(json.dumps(e) + "\n" for e in events).encode())


def service(exec_answer: httpx.Response) -> Handler:
    """Creates and deletes a sandbox; every exec gets the same answer."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/exec"):
            return exec_answer
        if request.method == "POST":
            return httpx.Response(201, json={"id": SBX, "state": "ready"})
        return httpx.Response(204)

    return handle


def test_output_text_is_exact() -> None:
    answer = ndjson(
        {"type": "stdout", "data": "still ", "seq": 1, "ts": 5},
        {"type": "stdout", "data": "alive\n", "seq": 2, "ts": 5},
        {"type": "stderr", "data": "warning", "seq": 3, "ts": 5},
        {"type": "exit", "data": 3, "seq": 4, "ts": 6},
    )
    with Sandbox(client=client_for(service(answer))) as sbx:
        result = sbx.run_code("whatever")
    assert result == ramet.ExecResult("still alive\n", "warning", 3)
    assert not result.ok


def test_a_call_returns_no_more_output_than_the_limit() -> None:
    answer = ndjson(
        {"type": "stdout", "data": "still ", "seq": 1, "ts": 5},
        {"type": "stdout", "data": "alive", "seq": 2, "ts": 5},
        {"type": "stderr", "data": "warn", "seq": 3, "ts": 5},
        {"type": "exit", "data": 0, "seq": 4, "ts": 6},
    )
    parts: list[str] = []
    sbx = Sandbox(client=client_for(service(answer)))
    result = sbx.run_code("x", max_output_bytes=12, on_stdout=parts.append)
    assert result == ramet.ExecResult("still al", "warn", 0, truncated=True)
    assert parts == ["still ", "alive"]


def test_character_split_over_two_chunks_is_decoded() -> None:
    euro = "€".encode()
    chunks = [euro[:1], euro[1:]]
    answer = ndjson(
        *(
            {"type": "stdout", "data": "\ufffd", "data_b64": base64.b64encode(c).decode(),
             "seq": i, "ts": 0}
            for i, c in enumerate(chunks)
        ),
        {"type": "exit", "data": 0, "seq": 9, "ts": 0},
    )
    sbx = Sandbox(client=client_for(service(answer)))
    assert sbx.run_code("x").stdout == "€"


def test_only_newlines_split_the_stream_and_empty_lines_are_skipped() -> None:
    line = json.dumps({"type": "stdout", "data": "a\u2028b", "seq": 1, "ts": 0}, ensure_ascii=False)
    end = json.dumps({"type": "exit", "data": 0, "seq": 2, "ts": 0})

    def chunks() -> Iterator[bytes]:
        body = f"\n{line}\n\n{end}\n".encode()
        for i in range(0, len(body), 7):
            yield body[i : i + 7]

    sbx = Sandbox(client=client_for(service(httpx.Response(200, content=chunks()))))
    assert sbx.run_code("x").stdout == "a\u2028b"


def test_stream_without_exit_event_is_an_error() -> None:
    answer = ndjson({"type": "stdout", "data": "half", "seq": 1, "ts": 0})
    sbx = Sandbox(client=client_for(service(answer)))
    with pytest.raises(ramet.ConnectionFailed, match="exit event"):
        sbx.run_code("x")


def test_death_of_the_vm_during_a_stream_raises_vm_died() -> None:
    answer = ndjson(
        {"type": "stdout", "data": "half", "seq": 1, "ts": 0},
        {"type": "error", "data": "the VM died", "code": "vm_died", "seq": 2, "ts": 0},
    )
    sbx = Sandbox(client=client_for(service(answer)))
    with pytest.raises(ramet.VmDied, match="the VM died"):
        sbx.run_code("x")


def test_create_sends_its_arguments() -> None:
    sent: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    client = client_for(handle)
    Sandbox(client=client, ram_mib=1024, env={"A": "b"})
    Sandbox(client=client, template="t", vcpus=4, rootfs_gb=16, egress=False, metadata={})
    assert sent == [
        {"ram_mib": 1024, "env": {"A": "b"}},
        {"template": "t", "vcpus": 4, "rootfs_gb": 16, "egress": False, "metadata": {}},
    ]


class Listing:
    """Lists of `many` entries in pages of `most`; the cursor is a number."""

    def __init__(self, many: int, most: int) -> None:
        self.many, self.most = many, most
        self.requests: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request.url.raw_path.decode())
        begin = int(request.url.params.get("cursor", "0"))
        end = min(begin + self.most, self.many)
        more = {"ramet-next-cursor": str(end)} if end < self.many else {}
        size = {"vcpus": 1, "ram_mib": 128, "rootfs_gb": 1, "sizes": []}
        one = {"state": "ready", "name": "", "description": "", **size}
        entries = [{"id": f"{i}", **one} for i in range(begin, end)]
        return httpx.Response(200, json=entries, headers=more)


@pytest.mark.parametrize(("many", "most"), [(0, 5), (1, 5), (5, 5), (6, 5), (23, 5), (23, 10**6)])
def test_lists_contain_all_pages(many: int, most: int) -> None:
    service = Listing(many, most)
    client = client_for(service)
    every = [str(i) for i in range(many)]
    assert [one.id for one in client.list_sandboxes()] == every
    assert len(service.requests) == max(1, -(-many // most))
    assert service.requests[0] == "/v1/sandboxes?limit=500"
    assert [one.id for one in client.list_children(SBX)] == every
    assert len(client.templates()) == many
    assert [one.id for one in client.iter_sandboxes()] == every


def test_filters_of_a_list_are_sent() -> None:
    service = Listing(0, 5)
    client = client_for(service)
    noon = datetime(2026, 1, 31, 12, 0, 0, 123456, timezone(timedelta(hours=2)))
    client.list_sandboxes(state="ready", template="a", metadata={"run": 7}, created_after=noon)
    assert service.requests == [
        "/v1/sandboxes?limit=500&state=ready&template=a&metadata=%7B%22run%22%3A7%7D"
        "&created_after=2026-01-31T10%3A00%3A00.123Z"
    ]


def test_pages_are_requested_on_demand() -> None:
    service = Listing(100, 10)
    some = client_for(service).iter_sandboxes()
    assert [next(some).id for _ in range(11)] == [str(i) for i in range(11)]
    assert service.requests == ["/v1/sandboxes?limit=500", "/v1/sandboxes?limit=500&cursor=10"]


def test_list_that_lacks_hosts_warns() -> None:
    headers = {"ramet-missing-hosts": "h18, h19"}
    client = client_for(lambda request: httpx.Response(200, json=[], headers=headers))
    with pytest.warns(ramet.IncompleteListWarning, match="h18, h19") as caught:
        assert client.list_sandboxes() == client.list_spaces() == []
    assert [one.filename for one in caught] == [__file__] * 2


def test_templates_are_parsed() -> None:
    size = {"vcpus": 2, "ram_mib": 512, "rootfs_gb": 4}
    one = {"name": "default", "description": "as it comes", "state": "ready", "sizes": [size]}
    client = client_for(lambda request: httpx.Response(200, json=[one | size]))
    expected = ramet.TemplateInfo("default", "as it comes", "ready", 2, 512, 4, one | size)
    assert client.templates() == [expected]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "bad_field", ramet.BadRequest),
        (401, "unauthorized", ramet.Unauthorized),
        (404, "not_found", ramet.NotFound),
        (404, "expired", ramet.Expired),
        (404, "frozen", ramet.Frozen),
        (409, "space_damaged", ramet.SpaceDamaged),
        (409, "wrong_state", ramet.Conflict),
        (404, "merged", ramet.NotFound),
        (410, "vm_died", ramet.VmDied),
        (413, "too_large", ramet.BadRequest),
        (429, "cap_reached", ramet.CapReached),
        (429, "quota_reached", ramet.CapReached),
        (500, "internal", ramet.ServerError),
        (503, "no_capacity", ramet.Unavailable),
    ],
)
def test_errors_are_typed(status: int, code: str, kind: type[ramet.RametError]) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            status, json={"error": "a sentence", "code": code}, headers={"retry-after": "7"}
        )

    client = Client(transport=httpx.MockTransport(handle), retry_seconds=0)
    with pytest.raises(kind) as caught:
        client.get_sandbox(SBX)
    assert type(caught.value) is kind
    assert str(caught.value) == "a sentence"
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (status, code, 7)


def test_answer_without_json_is_quoted() -> None:
    with pytest.raises(ramet.ServerError, match="HTTP 502: <html>"):
        client_for(lambda r: httpx.Response(502, text="<html>")).get_sandbox(SBX)


def test_missing_service_is_reported_with_its_address() -> None:
    client = Client("http://127.0.0.1:9")
    with pytest.raises(ramet.ConnectionFailed, match="http://127.0.0.1:9"):
        client.list_sandboxes()
    assert client.healthz() is False


@pytest.mark.parametrize("host", ["localhost:7070", "7070", "http:", "http://[::1]:x", "ftp://a"])
def test_invalid_url_is_reported(host: str) -> None:
    with pytest.raises(ramet.ConnectionFailed, match="must be a URL") as caught:
        Client(host)
    assert repr(host) in str(caught.value)


def test_slow_requests_have_longer_timeouts() -> None:
    limits: dict[str, float] = {}
    nothing: dict[str, Any] = {"added": [], "removed": [], "modified": []}

    def handle(request: httpx.Request) -> httpx.Response:
        limits[request.method + request.url.path] = request.extensions["timeout"]["read"]
        return httpx.Response(201, json={"id": "1", "state": "ready"} | nothing)

    client = Client(transport=httpx.MockTransport(handle), timeout=7)
    client.create_sandbox()
    client.get_sandbox("1")
    client.diff_sandboxes("1", "2")
    assert limits["GET/v1/sandboxes/1"] == 7
    assert limits["POST/v1/sandboxes"] > 300 and limits["POST/v1/sandboxes/1/diff/2"] > 3600


def test_read_timeout_is_reported() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    client = Client(transport=httpx.MockTransport(handle), timeout=7)
    with pytest.raises(ramet.ConnectionFailed, match="no data was received for 7 s"):
        client.get_sandbox(SBX)


SAMPLE = {
    "at": "2026-01-31T23:59:59.123Z",
    "cpu_percent": 12.5,
    "cpu_seconds": 1.25,
    "memory_used_bytes": 1 << 20,
    "disk_layer_bytes": 4096,
    "network_received_bytes": 1,
    "network_sent_bytes": 2,
}


def test_metrics_end_with_this_moment() -> None:
    asked: list[dict[str, str]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/v1/sandboxes/{SBX}/metrics"
        asked.append(dict(request.url.params))
        sizes = {"vcpus": 2, "memory_limit_bytes": 1 << 29, "disk_size_bytes": 4 << 30}
        old = SAMPLE | {"cpu_percent": None}
        return httpx.Response(200, json=sizes | {"now": SAMPLE, "samples": [old, old]})

    client = client_for(handle)
    samples = client.get_metrics(SBX)
    assert [one.cpu_percent for one in samples] == [None, None, 12.5]
    assert samples[-1] == ramet.Metrics(
        at="2026-01-31T23:59:59.123Z",
        cpu_percent=12.5,
        cpu_seconds=1.25,
        vcpus=2,
        memory_used_bytes=1 << 20,
        memory_limit_bytes=1 << 29,
        disk_layer_bytes=4096,
        disk_size_bytes=4 << 30,
        network_received_bytes=1,
        network_sent_bytes=2,
    )
    at = datetime(2026, 2, 1, 1, 0, 0, 500000, timezone(timedelta(hours=1)))
    assert len(client.get_metrics(SBX, since=at, until=at, limit=3)) == 2
    time = "2026-02-01T00:00:00.500Z"
    assert asked == [{}, {"since": time, "until": time, "limit": "3"}]


def test_closed_sandbox_and_client_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ramet.space.Client", lambda *_, **__: client_for(service(ndjson())))
    with Sandbox() as sbx:
        pass
    with pytest.raises(ramet.NotFound, match=f"{SBX} is gone: it was closed"):
        sbx.fork(2)
    with pytest.raises(ramet.ConnectionFailed, match="client was closed"):
        sbx._client.list_sandboxes()


def test_connected_sandbox_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        log.append(request.method)
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    monkeypatch.setattr("ramet.space.Client", lambda *_, **__: client_for(handle))
    with Sandbox.connect(SBX) as sbx:
        pass
    assert log == ["GET"] and sbx._client.closed
    with pytest.raises(ramet.NotFound, match="connect to it again"):
        sbx.info()
    Sandbox.connect(SBX).close()
    with Sandbox.connect(SBX) as sbx:
        sbx.close()
    with Sandbox.connect(SBX, kill=True):
        pass
    assert log == ["GET"] + 3 * ["GET", "DELETE"]


def test_host_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", "http://10.1.2.3:81/")
    monkeypatch.setenv("RAMET_API_KEY", "secret")
    seen: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.extend([str(request.url), request.headers["authorization"]])
        return httpx.Response(200, json=[])

    with pytest.warns(ramet.PlainHttpWarning):
        client_for(handle).list_sandboxes()
    assert seen == ["http://10.1.2.3:81/v1/sandboxes?limit=500", "Bearer secret"]


def test_close_is_idempotent_and_accepts_a_missing_sandbox() -> None:
    deletes: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            deletes.append(request.url.path)
            return httpx.Response(404, json={"error": "no such sandbox", "code": "not_found"})
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    sbx = Sandbox(client=client_for(handle))
    sbx.close()
    sbx.close()
    assert deletes == [f"/v1/sandboxes/{SBX}"]


def test_concurrent_closes_delete_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread waits until the other one has read that the sandbox is open."""
    closed: list[bool] = []

    def own_client(*_: object, **__: object) -> Client:
        client = client_for(family)
        monkeypatch.setattr(client, "close", lambda: closed.append(True))
        return client

    family = Family()
    monkeypatch.setattr("ramet.space.Client", own_client)
    sandbox = Sandbox()
    together = threading.Barrier(2)
    monkeypatch.setattr(Sandbox, "_closed", Flag(together), raising=False)
    threads = [threading.Thread(target=sandbox.close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert family.log[1:] == ["DELETE /1"]
    assert closed == [True]


class Flag:
    """An attribute whose read waits up to 0.2 s for another thread to read it too."""

    def __init__(self, together: threading.Barrier) -> None:
        self.value = False
        self.together = together

    def __get__(self, obj: object, kind: type) -> bool:
        value = self.value
        try:
            self.together.wait(0.2)
        except threading.BrokenBarrierError:
            pass
        return value

    def __set__(self, obj: object, value: bool) -> None:
        self.value = value


def test_id_cannot_change_the_path() -> None:
    paths: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path)
        return httpx.Response(200, json={"id": SBX, "state": "ready"})

    client_for(handle).get_sandbox("../../metrics?x")
    assert paths == [b"/v1/sandboxes/..%2F..%2Fmetrics%3Fx"]


# --- fork, merge, diff ---


class Family:
    """A fake service for sandboxes that fork, merge and close; `log` has the requests."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.made = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, request.content.decode()
        body = body.replace(": ", ":").replace(", ", ",")  # as newer versions of httpx send it
        self.log.append(f"{request.method} {path} {body}".replace("/v1/sandboxes", "").strip())
        if path.endswith("/fork"):
            n = json.loads(body)["n"]
            return httpx.Response(200, json={"children": [self._id() for _ in range(n)]})
        if "/merge_into/" in path or request.method == "DELETE":
            return httpx.Response(204)
        return httpx.Response(201, json={"id": self._id(), "state": "ready"})

    def _id(self) -> str:
        self.made += 1
        return str(self.made)


def test_fork_makes_sandboxes_of_the_same_client() -> None:
    family = Family()
    client = client_for(family)
    with Sandbox(client=client) as parent:
        a, b = parent.fork(2)
        (c,) = parent.fork(reseed=True)
        assert [a.id, b.id, c.id] == ["2", "3", "4"]
        b.close()
        b.close()
    expected = ['POST /1/fork {"n":2}', 'POST /1/fork {"n":1,"reseed":true}']
    assert family.log[1:] == [*expected, "DELETE /3", "DELETE /1"]


def test_winner_of_a_merge_closes_without_a_request() -> None:
    family = Family()
    with Sandbox(client=client_for(family)) as parent:
        with parent.fork()[0] as winner:
            parent.merge_into(winner)
    assert family.log[2:] == ["POST /1/merge_into/2", "DELETE /1"]


def test_winner_of_a_failed_merge_is_still_deleted() -> None:
    family = Family()

    def handle(request: httpx.Request) -> httpx.Response:
        if "/merge_into/" in request.url.path:
            return httpx.Response(409, json={"error": "no kin", "code": "not_a_descendant"})
        return family(request)

    with Sandbox(client=client_for(handle)) as parent:
        with parent.fork()[0] as winner, pytest.raises(ramet.Conflict, match="no kin"):
            parent.merge_into(winner)
    assert family.log[-2:] == ["DELETE /2", "DELETE /1"]


def test_own_client_is_closed_with_its_last_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []

    def own_client(*_: object, **__: object) -> Client:
        client = client_for(Family())
        monkeypatch.setattr(client, "close", lambda: closed.append(True))
        return client

    monkeypatch.setattr("ramet.space.Client", own_client)
    parent = Sandbox()
    a, b, winner = parent.fork(3)
    parent.merge_into(winner)
    for sandbox in (parent, winner, a, a):
        sandbox.close()
        assert not closed
    b.close()
    assert closed == [True]


def test_call_in_a_replaced_vm_raises_conflict() -> None:
    answer = ndjson({"type": "error", "data": "it was merged", "code": "merged", "seq": 1, "ts": 0})
    with pytest.raises(ramet.Conflict, match="it was merged"):
        Sandbox(client=client_for(service(answer))).run_code("x")


def test_diff_sends_its_paths_and_keeps_names_exact() -> None:
    sent: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if "/diff/" not in request.url.path:
            return httpx.Response(201, json={"id": "1", "state": "ready"})
        sent.append((request.url.path, json.loads(request.content)))
        exact = [None, base64.b64encode(b"/tmp/\xff").decode()]
        return httpx.Response(
            200,
            json={
                "added": ["/tmp/\ufffd", "/tmp/\ufffd"],
                "added_b64": exact,
                "removed": [],
                "modified": ["/tmp"],
            },
        )

    sbx = Sandbox(client=client_for(handle))
    diff = sbx.diff(sbx)
    assert diff == ramet.Diff(["/tmp/\ufffd", "/tmp/\udcff"], [], ["/tmp"])
    assert diff and not ramet.Diff([], [], [])
    assert os.fsencode(diff.added[1]) == b"/tmp/\xff"
    sbx.diff(sbx, ["/srv"])
    url = "/v1/sandboxes/1/diff/1"
    assert sent == [(url, {}), (url, {"paths": ["/srv"]})]
    with pytest.raises(TypeError, match="list"):
        sbx.diff(sbx, "/srv")


def test_merge_of_files_names_sandboxes_and_keeps_paths_exact() -> None:
    sent: list[Any] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/merge-files"):
            return httpx.Response(201, json={"id": "1", "state": "ready"})
        sent.append((request.url.path, json.loads(request.content)))
        name = {"path": "/tmp/\ufffd", "path_b64": base64.b64encode(b"/tmp/\xff").decode()}
        return httpx.Response(
            200,
            json={
                "applied": True,
                "taken": [{**name, "branches": ["1"], "change": "added"}],
                "conflicts": [
                    {"path": "/a", "branches": ["1"], "reason": "type", "resolution": None}
                ],
                "branches": [{"id": "1", "changed": 2, "conflicts": 1}],
            },
        )

    sbx = Sandbox(client=client_for(handle))
    merged = sbx.merge_files([sbx], base=sbx)
    assert merged == ramet.FileMerge(
        True,
        [ramet.TakenFile("/tmp/\udcff", ["1"], "added")],
        [ramet.FileConflict("/a", ["1"], "type", None)],
        [ramet.MergedBranch("1", 2, 1)],
    )
    sbx.merge_files([sbx], base=sbx, paths=["/srv"], conflicts="theirs")
    body = {"branches": ["1"], "base": "1"}
    assert sent == [
        ("/v1/sandboxes/1/merge-files", {**body, "conflicts": "report"}),
        ("/v1/sandboxes/1/merge-files", {**body, "conflicts": "theirs", "paths": ["/srv"]}),
    ]
    with pytest.raises(TypeError, match="lists"):
        sbx.merge_files([sbx], base=sbx, paths="/srv")


def test_diff_of_a_text_is_a_text() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if "/diff/" not in request.url.path:
            return httpx.Response(201, json={"id": "1", "state": "ready"})
        assert request.method == "GET" and request.url.params["path"] == "/a b"
        return httpx.Response(200, content=b"-\xff\n")

    sbx = Sandbox(client=client_for(handle))
    assert sbx.diff_text(sbx, "/a b") == "-\ufffd\n"


def test_info_has_parent_and_children() -> None:
    info = ramet.SandboxInfo.from_json(
        {"id": "2", "state": "ready", "parent": "1", "children": ["3"]}
    )
    assert (info.parent, info.children) == ("1", ["3"])
    listed = ramet.SandboxInfo.from_json({"id": "1", "state": "ready", "parent": None})
    assert (listed.parent, listed.children) == (None, [])


def test_info_has_size_and_expiry() -> None:
    end = "2026-02-01T23:59:59.123Z"
    answer = {"id": "1", "state": "ready", "vcpus": 2, "ram_mib": 512, "rootfs_gb": 4}
    info = ramet.SandboxInfo.from_json({**answer, "expires_at": end})
    assert (info.vcpus, info.ram_mib, info.rootfs_gb, info.expires_at) == (2, 512, 4, end)
    assert ramet.SandboxInfo.from_json({**answer, "expires_at": None}).expires_at is None


def test_columns_of_one_name_are_pairs() -> None:
    data = "application/vnd.ramet.data+json"
    note = {"text/vnd.ramet.note": "two columns are called a"}
    one = ramet.Result({data: {"a": [1], "b": [2]}})
    assert (one.data, one.columns) == ({"a": [1], "b": [2]}, [("a", [1]), ("b", [2])])
    one = ramet.Result({data: [["a", [1]], [1, [2]]], **note})
    assert (one.data, one.columns) == (None, [("a", [1]), (1, [2])])
    assert one.note == "two columns are called a"
    for odd in (None, 1, "a", [1], [[1, 2]], [["a", [1], 2]]):
        assert ramet.Result({data: odd}).columns is None


def test_results_and_exceptions_of_a_call() -> None:
    png = b"\x89PNG\r\n\x1a\n\0"
    picture = {
        "text/plain": "a figure",
        "image/png": base64.b64encode(png).decode(),
        "application/vnd.ramet.chart+json": {"type": "line", "elements": []},
    }
    frame = {"text/html": "<table>", "application/vnd.ramet.data+json": {"a": [1]}}
    answer = ndjson(
        {"type": "result", "data": "", "mime": picture, "main": False, "seq": 1, "ts": 0},
        {"type": "stdout", "data": "out", "seq": 2, "ts": 0},
        {"type": "result", "data": "", "mime": frame, "main": True, "seq": 3, "ts": 0},
        {"type": "error", "data": "", "name": "KeyError", "value": "'k'", "traceback": "T",
         "seq": 4, "ts": 0},
        {"type": "exit", "data": 1, "seq": 5, "ts": 0},
    )
    seen: list[Any] = []
    sbx = Sandbox(client=client_for(service(answer)))
    result = sbx.run_code(
        "x", on_stdout=seen.append, on_result=seen.append, on_error=seen.append
    )
    first, second = result.results
    assert seen == [first, "out", second, result.error]
    assert (first.text, first.png, first.main, first.html) == ("a figure", png, False, None)
    assert first.chart == {"type": "line", "elements": []} and first.data is None
    assert (second.html, second.data, second.main) == ("<table>", {"a": [1]}, True)
    assert result.png == png and result.text is None
    assert result.error == ramet.CodeError("KeyError", "'k'", "T")
    inert = {mime: picture[mime] for mime in ("text/plain", "image/png")}
    assert first._repr_mimebundle_() == inert  # Jupyter takes base64 for pictures
    sbx = Sandbox(client=client_for(service(answer)))
    events = list(sbx.run_code_stream("x"))
    assert [event.type for event in events] == ["result", "stdout", "result", "error", "exit"]
    assert events[0].result == first and events[3].error == result.error


@pytest.mark.parametrize(
    ("language", "results", "sent"),
    [("python", True, True), ("python", False, None), ("bash", True, None)],
)
def test_results_are_requested_for_python(language: Any, results: bool, sent: bool | None) -> None:
    bodies: list[dict[str, Any]] = []
    end = ndjson({"type": "exit", "data": 0, "seq": 1, "ts": 0})

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/exec"):
            bodies.append(json.loads(request.content))
        return service(end)(request)

    Sandbox(client=client_for(handle)).run_code("x", language, results=results)
    assert bodies[0].get("results") == sent


def test_jupyter_runs_nothing_of_a_sandbox_in_its_page() -> None:
    script = "<script>\"'</script>"
    mime = {"text/plain": "t", "text/html": script, "application/javascript": "1", "x/y": "z"}
    shown = ramet.Result(mime)._repr_mimebundle_()
    assert sorted(shown) == ["text/html", "text/plain"]
    frame = shown["text/html"]
    assert frame.startswith('<iframe sandbox="allow-scripts" srcdoc="') and "<script" not in frame
    assert frame.count('"') == 6 and html.unescape(frame).count(script) == 1
    assert "iframe" in ramet.Result({"image/svg+xml": "<svg/>"})._repr_mimebundle_()["text/html"]
    assert ramet.Result({"image/png": "x"}).png is None
    assert ramet.Result({"text/markdown": "*m*"})._repr_mimebundle_() == {"text/plain": "*m*"}


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg"])
def test_bytes_that_are_no_picture_are_none(mime: str) -> None:
    program = base64.b64encode(b"%!PS-Adobe-3.0 EPSF-3.0").decode()
    result = ramet.Result({"text/plain": "t", mime: program})
    assert result.png is None and result.jpeg is None
    assert result._repr_mimebundle_() == {"text/plain": "t"}


def test_jupyter_gets_only_base64_as_a_picture() -> None:
    png = b"\x89PNG\r\n\x1a\n\0"
    encoded = base64.b64encode(png).decode()
    for sent in (encoded, f'"><script>{encoded}', encoded + '"><script>'):
        shown = ramet.Result({"image/png": sent})._repr_mimebundle_()
        assert "<" not in shown.get("image/png", "")
    assert ramet.Result({"image/png": encoded})._repr_mimebundle_() == {"image/png": encoded}


def test_jupyter_shows_output_and_results(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    shown: list[Any] = []
    module = types.ModuleType("IPython.display")
    setattr(module, "display", shown.append)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    one = ramet.Result({"text/plain": "1"}, True)
    ramet.ExecResult("out", "err", 0, [one])._ipython_display_()
    assert shown == [one] and capsys.readouterr() == ("out", "err")


def test_import_of_the_package_is_small_and_complete() -> None:
    """The command line starts in a moment, and every name is there."""
    code = "import ramet, sys; assert not {'httpx', 'asyncio', 'ramet.client'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "from ramet import Sandbox; import sys; assert 'ramet._async.client' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import ramet; ramet.files.Progress; ramet.errors.RametError; ramet.client.Client"
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in ramet.__all__:
        assert getattr(ramet, name).__module__.startswith(("ramet", "typing")), name
    assert set(ramet.__all__) == set(ramet._HOME) and set(ramet.__all__) <= set(dir(ramet))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ramet.nothing


def test_version_of_the_service() -> None:
    spec = {"info": {"version": "1.2.3"}}

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/openapi.json"
        return httpx.Response(200, json=spec)

    assert client_for(handle).version() == "1.2.3"


def test_info_has_all_fields_of_the_api() -> None:
    sent: dict[str, Any] = {
        "id": SBX, "state": "freezing", "template": "slim", "vcpus": 2, "ram_mib": 512,
        "rootfs_gb": 4, "persistent": True, "egress": False,
        "created_at": "2026-01-31T23:59:59.123Z", "expires_at": None,
        "idle_expires_at": "2026-02-01T00:59:59.123Z", "parent": "sbx_1", "children": ["sbx_2"],
        "children_more": True, "memory_private_bytes": 3, "memory_shared_bytes": 4,
        "metadata": {"run": 7}, "frozen_bytes": 5, "freeze_bytes": 6, "region": "eu",
        "endpoint": "https://eu",
    }  # fmt: skip
    info = ramet.SandboxInfo.from_json(sent)
    assert {name: getattr(info, name) for name in sent} == sent
    assert "template='slim'" in repr(info)
    created = ramet.SandboxInfo.from_json({"id": SBX, "state": "ready"})
    assert (created.parent, created.children, created.frozen_bytes) == (None, [], None)
    with pytest.raises(AttributeError, match="vcpus .* `get_sandbox` returns the rest"):
        created.vcpus
    assert getattr(created, "metadata", None) is None


def test_text_of_a_sandbox_cannot_forge_lines_of_a_log() -> None:
    error = ramet.BadRequest("no file a\x1b[2J\n2026 INFO done\u202e", code="x")
    assert str(error) == "no file a\\u001b[2J\\n2026 INFO done\\u202e"
    assert error.args[0].startswith("no file a\x1b")
