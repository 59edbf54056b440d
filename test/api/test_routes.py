# SPDX-License-Identifier: Apache-2.0
"""What each route answers, and how invalid requests are refused, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

from conftest import Server

REPO = Path(__file__).resolve().parents[2]
NOBODY = "/v1/sandboxes/sbx_" + "f" * 32


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "code"}
    assert body["code"] == code
    assert answer.headers["content-type"] == "application/json"
    return str(body["error"])


def made(http: httpx.Client, template: str = "default", **spec: Any) -> str:
    """Creates a sandbox and returns its path."""
    answer = http.post("/v1/sandboxes", json={"template": template} | spec)
    return "/v1/sandboxes/" + str(answer.json()["id"])


def test_healthz_is_exactly_ok(http: httpx.Client) -> None:
    answer = http.get("/v1/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok")
    assert answer.headers["content-type"].startswith("text/plain")


def test_healthz_fails_until_ready(start: Callable[..., Server]) -> None:
    server = start("ready=no")
    with server.client() as http:
        answer = http.get("/v1/healthz")
        assert "template" in refused(answer, 503, "not_ready")
        assert answer.headers["retry-after"] == "1"
        server.process.send_signal(signal.SIGUSR1)
        while http.get("/v1/healthz").status_code != 200:
            pass


def test_create_info_list_delete(http: httpx.Client) -> None:
    asked = {
        "template": "small",
        "vcpus": 1,
        "ram_mib": 256,
        "rootfs_gb": 8,
        "timeout_seconds": 60,
        "idle_timeout_seconds": 30.0,
        "persistent": True,
        "egress": False,
        "env": {"A": "b"},
        "metadata": {"who": "tëst", "n": [1, None]},
        "unknown": {"is": "ignored"},
    }
    created = http.post("/v1/sandboxes", json=asked)
    assert created.status_code == 201
    assert set(created.json()) == {"id", "state"}
    path = "/v1/sandboxes/" + created.json()["id"]
    info = http.get(path).json()
    for name in ("template", "vcpus", "ram_mib", "rootfs_gb", "persistent", "egress", "metadata"):
        assert info[name] == asked[name]
    assert info["created_at"] == "2023-11-14T22:13:20.123Z"
    assert info["expires_at"] is None
    assert info.pop("children") == []
    assert http.get("/v1/sandboxes").json() == [info]
    gone = http.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    refused(http.get(path), 404, "not_found")
    refused(http.delete(path), 404, "not_found")
    assert http.get("/v1/sandboxes").json() == []


def test_create_needs_no_body(http: httpx.Client) -> None:
    assert http.post("/v1/sandboxes").status_code == 201


def test_configured_region_and_endpoint_are_returned(start: Callable[..., Server]) -> None:
    server = start("region=eu-1", "endpoint=https://ramet.example")
    with server.client() as http:
        created = http.post("/r/eu-1/v1/sandboxes", json={}).json()
        assert created["region"] == "eu-1" and created["endpoint"] == "https://ramet.example"
        assert http.get("/r/eu-1/v1/sandboxes/" + created["id"]).json()["region"] == "eu-1"
        refused(http.get("/r/us-1/v1/sandboxes"), 404, "unknown_region")


def test_failures_of_core_are_reported(http: httpx.Client, server: Server) -> None:
    full = http.post("/v1/sandboxes", json={"template": "full"})
    assert refused(full, 503, "no_capacity") == "the host is full"
    assert full.headers["retry-after"] == "7"
    refused(http.post("/v1/sandboxes", json={"template": "missing"}), 400, "unknown_template")
    broken = http.post("/v1/sandboxes", json={"template": "broken"})
    sentence = refused(broken, 500, "agent_error")
    assert "the agent is confused" in sentence
    fault = re.search(r"[0-9a-f]{16}", sentence)
    assert fault
    http.close()
    log = server.stop()
    assert f"fault {fault[0]}: POST /v1/sandboxes: the agent is confused" in log


def test_numbers_above_their_limit_are_reduced(http: httpx.Client) -> None:
    body = b"""{"ram_mib": 999999, "vcpus": 33, "rootfs_gb": 1e300,
        "timeout_seconds": 31536001, "idle_timeout_seconds": 99999999999}"""
    created = http.post("/v1/sandboxes", content=body)
    assert created.status_code == 201, created.text
    info = http.get("/v1/sandboxes/" + created.json()["id"]).json()
    assert (info["ram_mib"], info["vcpus"], info["rootfs_gb"]) == (65536, 32, 1024)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'{"ram_mib": 127}', "ram_mib must be a whole number from 128 to 65536, not 127"),
        (b'{"vcpus": 0}', "vcpus"),
        (b'{"vcpus": 33.5}', "vcpus"),
        (b'{"rootfs_gb": 0}', "rootfs_gb"),
        (b'{"lifetime_seconds": 0}', "lifetime_seconds"),
        (b'{"timeout_seconds": 0}', "timeout_seconds"),
        (b'{"idle_timeout_seconds": "1"}', "idle_timeout_seconds"),
        (b'{"persistent": 1}', "persistent"),
        (b'{"egress": "no"}', "egress"),
        (b'{"template": "../x"}', "template"),
        (b'{"template": ".x"}', "template"),
        (b'{"template": "' + b"x" * 64 + b'"}', "template must be at most 63 bytes long, not 64"),
        (b'{"metadata": {"x": "' + b"x" * 16384 + b'"}}', "metadata must be at most 16384"),
        (b'{"env": {"A=B": "c"}}', "env"),
        (b'{"metadata": ' + b"[" * 100_000, "deeper"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b"{}{}", "JSON"),
    ],
)
def test_invalid_create_is_refused(http: httpx.Client, body: bytes, names: str) -> None:
    assert names in refused(http.post("/v1/sandboxes", content=body), 400, "bad_request")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, "code is missing"),
        ({"code": None}, "code is missing"),
        ({"code": 1}, "code must be a string, not a number"),
        ({"code": "", "language": "perl"}, 'language must be "python" or "bash", not "perl"'),
        ({"code": "", "language": "javascript"}, "JavaScript runs in a context"),
        ({"code": "", "output": "words"}, 'output must be "lines" or "chunks", not "words"'),
        ({"code": "", "timeout_seconds": 0}, "timeout_seconds"),
        ({"code": "", "timeout_seconds": 1e9}, "timeout_seconds"),
        ({"code": "", "cwd": ["/"]}, "cwd"),
        ({"code": "", "cwd": "/" * 4097}, "cwd must be at most 4096 bytes long, not 4097"),
        ({"code": "", "env": {"A": None}}, 'env must be an object of strings; "A" is null'),
    ],
)
def test_invalid_exec_is_refused(http: httpx.Client, sandbox: str, body: dict[str, Any], names: str) -> None:
    assert names in refused(http.post(sandbox + "/exec", json=body), 400, "bad_request")


def test_unknown_routes_are_not_found(http: httpx.Client) -> None:
    for path in ("/", "/v2/healthz", "/v1/space", NOBODY + "/forks", NOBODY + "/file"):
        refused(http.get(path), 404, "no_such_route")
    assert "remove the slash" in refused(http.get("/v1/sandboxes/"), 404, "no_such_route")
    for path in ("/v1/sandboxes/sbx_", "/v1/sandboxes/x%2Fy"):
        refused(http.get(path), 404, "not_found")
    refused(http.get("/v1/%zz"), 400, "bad_path")
    for tail in ("", "/replay"):
        refused(http.get(NOBODY + tail), 404, "not_found")
    refused(http.post(NOBODY + "/exec", json={"code": ""}), 404, "not_found")
    refused(http.post(NOBODY + "/interrupt"), 404, "not_found")


def test_wrong_method_gets_the_allowed_ones(http: httpx.Client, sandbox: str) -> None:
    for path, allow in (
        ("/v1/sandboxes", {"GET", "HEAD", "POST"}),
        (sandbox, {"GET", "HEAD", "PATCH", "DELETE"}),
        (sandbox + "/exec", {"POST"}),
        (sandbox + "/fork", {"POST"}),
        (sandbox + "/merge_into/" + NOBODY[-36:], {"POST"}),
        (sandbox + "/diff/" + NOBODY[-36:], {"POST"}),
    ):
        for method in ("PUT", "OPTIONS"):
            answer = http.request(method, path)
            refused(answer, 405, "method_not_allowed")
            assert set(answer.headers["allow"].split(", ")) == allow


def test_changed_settings_are_answered_and_stay(http: httpx.Client, sandbox: str) -> None:
    before = http.get(sandbox).json()
    assert http.patch(sandbox).json() == before
    new = {"persistent": True, "metadata": {"run": 2, "who": "ë"}, "idle_timeout_seconds": 9}
    answer = http.patch(sandbox, json=new | {"timeout_seconds": 10**9, "egress": None})
    assert answer.status_code == 200
    assert answer.json() == http.get(sandbox).json()
    changed = {key for key, value in answer.json().items() if value != before[key]}
    assert changed == {"persistent", "metadata"}  # the stand-in shows no times
    assert answer.json()["metadata"] == new["metadata"]
    assert http.patch(sandbox, json={"egress": False}).json()["egress"] is False
    refused(http.patch(sandbox, json={"egress": True}), 409, "egress_closed")
    refusals: list[tuple[str, Any]] = [
        ("lifetime_seconds", 0),
        ("timeout_seconds", 0),
        ("persistent", "yes"),
        ("metadata", []),
        ("egress", 1),
    ]
    for field, value in refusals:
        answer = http.patch(sandbox, json={field: value})
        assert field in refused(answer, 400, "bad_request")
    refused(http.patch(NOBODY, json={}), 404, "not_found")


def test_head(http: httpx.Client, sandbox: str) -> None:
    length = len(http.get(sandbox).content)
    answer = http.head(sandbox)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == length
    assert http.head(sandbox + "/replay").status_code == 200


def test_openapi_lists_exactly_the_served_routes(http: httpx.Client) -> None:
    spec = http.get("/v1/openapi.json").json()
    listed = {
        (method.upper(), path)
        for path, item in spec["paths"].items()
        for method in item
        if method != "parameters"
    }
    table = (REPO / "orchestrator/api/routes.c").read_text()
    served = set(re.findall(r'\{"([A-Z]+)", "([^"]+)"', table))
    assert listed == served

    def refs(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [r for value in node.values() for r in refs(value)]
        return [r for item in node for r in refs(item)] if isinstance(node, list) else []

    for ref in refs(spec):
        node = spec
        for part in ref.removeprefix("#/").split("/"):
            node = node[part]


def test_templates(http: httpx.Client) -> None:
    default, data = http.get("/v1/templates").json()
    sizes = [
        {"vcpus": 2, "ram_mib": 512, "rootfs_gb": 4},
        {"vcpus": 2, "ram_mib": 1024, "rootfs_gb": 16},
    ]
    size = {"vcpus": 2, "ram_mib": 512, "rootfs_gb": 4}
    ready = {"name": "default", "description": "", "state": "ready"}
    assert default == {**ready, **size, "sizes": sizes}
    assert (data["state"], data["why"]) == ("failed", "pip: no such package")
    assert (data["description"], data["sizes"]) == ('numpy "and" more', [])


def test_documentation_has_every_route() -> None:
    document = (REPO / "docs/api.md").read_text()
    table = (REPO / "orchestrator/api/routes.c").read_text()
    for method, path in re.findall(r'\{"([A-Z]+)", "([^"]+)"', table):
        assert f"\n### `{method} {path}`\n" in document


def test_documentation_has_every_failure() -> None:
    document = (REPO / "docs/api.md").read_text()
    names = (REPO / "orchestrator/failure/failure.c").read_text()
    statuses = (REPO / "orchestrator/api/status.c").read_text()
    name_of = dict(re.findall(r'\[(FAIL_\w+)\] = "(\w+)"', names))
    status_of = dict(re.findall(r"\[(FAIL_\w+)\] = (\d{3})", statuses))
    sent = {(status_of[failure], name) for failure, name in name_of.items()}
    documented = {
        (status, name)
        for status, words in re.findall(r"^\| (\d{3}) \| (`[^|]*) \|", document, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", words)
    }
    # `pty_failed` comes in a line of a stream, and only `rametctl backup` fails with `backup_failed`.
    assert sent - documented == {("400", "pty_failed"), ("503", "backup_failed")}


def test_metrics(http: httpx.Client, server: Server, sandbox: str) -> None:
    http.post(sandbox + "/exec", json={"code": "out x"})
    http.get("/nothing")
    metrics = server.metrics()
    assert metrics["ramet_creates_total"] == 1
    assert metrics["ramet_sandboxes"] == 1
    assert metrics['ramet_http_requests_total{method="",route="",status="4xx"}'] == 1
    route = 'method="POST",route="/v1/sandboxes/{id}/exec",status="2xx"'
    assert metrics[f"ramet_http_requests_total{{{route}}}"] == 1
    assert metrics["ramet_exec_seconds_count"] == 1
    assert metrics['ramet_exec_seconds_bucket{le="+Inf"}'] == 1


def test_access_log_has_each_request(http: httpx.Client, server: Server, sandbox: str) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    http.post(sandbox + "/exec?x=secret", json={"code": "out x"}, headers={"traceparent": trace})
    http.get("/v1/healthz")
    http.get("/nowhere\x7f%0a".replace("\x7f", "%7f"))
    http.close()
    lines = server.stop().splitlines()
    exec_line = next(line for line in lines if "/exec" in line)
    logged = rf"POST {sandbox}/exec 200 \d+ bytes \d+\.\d{{3}} ms from 127.0.0.1 tenant local"
    assert re.search(rf"{logged} trace {trace}$", exec_line)
    assert not any("healthz" in line or "secret" in line for line in lines)
    assert any("GET /nowhere%7f%0a 404" in line for line in lines)


def test_traceparent_is_in_replay(http: httpx.Client, sandbox: str) -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
    for value in (trace, "garbage", trace.upper().replace("1", "G")):
        http.post(sandbox + "/exec", json={"code": ""}, headers={"traceparent": value})
    events = [json.loads(x) for x in http.get(sandbox + "/replay").text.splitlines()]
    assert [e.get("traceparent") for e in events] == [trace, None, None]
    assert [e["seq"] for e in events] == [1, 2, 3]


@pytest.mark.parametrize("method,path", [("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes")])
def test_web_pages_are_refused(http: httpx.Client, method: str, path: str) -> None:
    page = http.request(method, path, headers={"origin": "https://evil.example"})
    refused(page, 403, "browser_refused")
    rebound = http.request(method, path, headers={"host": "evil.example"})
    assert "evil.example" in refused(rebound, 403, "host_refused")
    assert http.request(method, path, headers={"host": "localhost:7070"}).is_success
    assert http.get("/v1/healthz", headers={"host": "evil.example"}).text == "ok"


def test_the_host_of_an_absolute_target_counts(server: Server) -> None:
    for host, status in (("evil.example", b"403"), ("localhost", b"200"), ("[::1]evil", b"403")):
        answer = server.raw(
            f"GET http://{host}/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        assert answer[9:12] == status, answer
