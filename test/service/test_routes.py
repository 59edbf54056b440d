# SPDX-License-Identifier: Apache-2.0
"""What each route answers, and how invalid requests are refused."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Callable

import httpx
import pytest

from conftest import NOBODY, Service, made, refused

REPO = Path(__file__).resolve().parents[2]


def test_create_info_list_delete(client: httpx.Client) -> None:
    asked = {
        "template": "default",
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
    created = client.post("/v1/sandboxes", json=asked)
    assert created.status_code == 201
    assert set(created.json()) == {"id", "state"}
    path = "/v1/sandboxes/" + created.json()["id"]
    info = client.get(path).json()
    for name in ("template", "vcpus", "ram_mib", "rootfs_gb", "persistent", "egress", "metadata"):
        assert info[name] == asked[name]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", info["created_at"])
    lifetime = datetime.fromisoformat(info["expires_at"]) - datetime.fromisoformat(info["created_at"])
    assert 59 <= lifetime.total_seconds() <= 61
    assert info.pop("children") == []
    (listed,) = client.get("/v1/sandboxes").json()
    assert listed.keys() == info.keys()
    changing = {"idle_expires_at", "memory_private_bytes", "memory_shared_bytes"}
    assert all(listed[name] == info[name] for name in info.keys() - changing)
    gone = client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    refused(client.get(path), 404, "not_found")
    refused(client.delete(path), 404, "not_found")
    assert client.get("/v1/sandboxes").json() == []


def test_create_needs_no_body(client: httpx.Client) -> None:
    assert client.post("/v1/sandboxes").status_code == 201


def test_configured_region_and_endpoint_are_returned(start: Callable[..., Service]) -> None:
    server = start("region=eu-1", "endpoint=https://ramet.example")
    with server.client() as http:
        created = http.post("/r/eu-1/v1/sandboxes", json={}).json()
        assert created["region"] == "eu-1" and created["endpoint"] == "https://ramet.example"
        assert http.get("/r/eu-1/v1/sandboxes/" + created["id"]).json()["region"] == "eu-1"
        refused(http.get("/r/us-1/v1/sandboxes"), 404, "unknown_region")


def test_regions_are_listed(start: Callable[..., Service]) -> None:
    others = "hel=https://hel.example,eu-1=https://old.example,iad=http://iad.example:7070"
    server = start("region=eu-1", "endpoint=https://ramet.example", f"regions={others}")
    with server.client() as http:
        assert http.get("/r/eu-1/v1/regions").json() == [
            {"name": "eu-1", "endpoint": "https://ramet.example", "here": True},
            {"name": "hel", "endpoint": "https://hel.example", "here": False},
            {"name": "iad", "endpoint": "http://iad.example:7070", "here": False},
        ]
        pinned = http.get("/r/hel/v1/sandboxes")
        assert refused(pinned, 404, "unknown_region").endswith(": use https://hel.example")
        unknown = refused(http.get("/r/helx/v1/sandboxes"), 404, "unknown_region")
        assert unknown.endswith("the endpoint of that region")


def test_without_settings_there_are_no_regions(client: httpx.Client) -> None:
    assert client.get("/v1/regions").json() == []


def test_create_without_room_is_refused(start: Callable[..., Service]) -> None:
    with start("max_vms=2").client() as http:
        made(http), made(http)
        full = http.post("/v1/sandboxes", json={})
        assert "all 2 VMs" in refused(full, 503, "no_capacity")
        assert int(full.headers["retry-after"]) >= 1


def test_fault_has_a_number_that_the_log_has_too(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http:
        broken = http.get(made(http) + "/files", params={"path": "/errno/5"})
        sentence = refused(broken, 500, "agent_error")
    assert "as requested" in sentence
    fault = re.search(r"fault [0-9a-f]{16}", sentence)
    assert fault
    (line,) = [line for line in server.whole_log().splitlines() if fault[0] in line]
    assert ": GET /v1/sandboxes/sbx_" in line and "as requested" in line


def test_numbers_above_their_limit_are_reduced(client: httpx.Client) -> None:
    body = b"""{"ram_mib": 999999, "vcpus": 33, "rootfs_gb": 1e300,
        "timeout_seconds": 31536001, "idle_timeout_seconds": 99999999999}"""
    created = client.post("/v1/sandboxes", content=body)
    assert created.status_code == 201, created.text
    info = client.get("/v1/sandboxes/" + created.json()["id"]).json()
    assert info["rootfs_gb"] == 1024
    assert 128 < info["ram_mib"] <= 65536 and 1 <= info["vcpus"] <= 32  # or what the host has


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
def test_invalid_create_is_refused(client: httpx.Client, body: bytes, names: str) -> None:
    assert names in refused(client.post("/v1/sandboxes", content=body), 400, "bad_request")


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
def test_invalid_exec_is_refused(client: httpx.Client, box: str, body: dict[str, Any], names: str) -> None:
    assert names in refused(client.post(box + "/exec", json=body), 400, "bad_request")


def test_unknown_routes_are_not_found(client: httpx.Client) -> None:
    for path in ("/", "/v2/healthz", "/v1/space", NOBODY + "/forks", NOBODY + "/file"):
        refused(client.get(path), 404, "no_such_route")
    assert "remove the slash" in refused(client.get("/v1/sandboxes/"), 404, "no_such_route")
    for path in ("/v1/sandboxes/sbx_", "/v1/sandboxes/x%2Fy"):
        refused(client.get(path), 404, "not_found")
    refused(client.get("/v1/%zz"), 400, "bad_path")
    for tail in ("", "/replay"):
        refused(client.get(NOBODY + tail), 404, "not_found")
    refused(client.post(NOBODY + "/exec", json={"code": ""}), 404, "not_found")
    refused(client.post(NOBODY + "/interrupt"), 404, "not_found")


def test_wrong_method_gets_the_allowed_ones(client: httpx.Client, box: str) -> None:
    for path, allow in (
        ("/v1/sandboxes", {"GET", "HEAD", "POST"}),
        (box, {"GET", "HEAD", "PATCH", "DELETE"}),
        (box + "/exec", {"POST"}),
        (box + "/fork", {"POST"}),
        (box + "/merge_into/" + NOBODY[-36:], {"POST"}),
        (box + "/diff/" + NOBODY[-36:], {"GET", "HEAD", "POST"}),
    ):
        for method in ("PUT", "OPTIONS"):
            answer = client.request(method, path)
            refused(answer, 405, "method_not_allowed")
            assert set(answer.headers["allow"].split(", ")) == allow


def settings_of(answer: httpx.Response) -> dict[str, Any]:
    """Returns what a sandbox has of the fields that a request can change."""
    assert answer.status_code == 200, answer.text
    names = ("persistent", "metadata", "egress", "expires_at")
    return {name: answer.json()[name] for name in names}


def test_changed_settings_are_answered_and_stay(client: httpx.Client, box: str) -> None:
    before = settings_of(client.get(box))
    assert settings_of(client.patch(box)) == before
    later = {"timeout_seconds": 10**9, "idle_timeout_seconds": 9}
    answer = client.patch(box, json=later | {"metadata": {"run": 2, "who": "\u00eb"}, "egress": None})
    after = settings_of(answer)
    assert after == settings_of(client.get(box)) and after["egress"] == before["egress"]
    assert after["metadata"] == {"run": 2, "who": "\u00eb"} and after["expires_at"] > before["expires_at"]
    assert client.patch(box, json={"persistent": True}).json()["persistent"] is True
    assert client.patch(box, json={"egress": False}).json()["egress"] is False
    refused(client.patch(box, json={"egress": True}), 409, "egress_closed")
    refusals: list[tuple[str, Any]] = [
        ("lifetime_seconds", 0),
        ("timeout_seconds", 0),
        ("persistent", "yes"),
        ("metadata", []),
        ("egress", 1),
    ]
    for field, value in refusals:
        answer = client.patch(box, json={field: value})
        assert field in refused(answer, 400, "bad_request")
    refused(client.patch(NOBODY, json={}), 404, "not_found")


def test_head(client: httpx.Client, box: str) -> None:
    length = len(client.get(box).content)
    answer = client.head(box)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == length
    assert client.head(box + "/replay").status_code == 200


def test_templates(tmp_path: Path) -> None:
    for name, conf in (("data", "description = numpy \"and\" more\nvcpus = 2"), ("bad", "vcpus = x")):
        (tmp_path / "service/templates" / name).mkdir(parents=True)
        (tmp_path / "service/templates" / name / "template.conf").write_text(conf + "\n")
    server = Service(tmp_path, agent=False)
    with server.client() as http:
        bad, data = sorted(http.get("/v1/templates").json()[1:], key=lambda one: str(one["name"]))
        default = http.get("/v1/templates").json()[0]
    server.stop()
    size = {"vcpus": 1, "ram_mib": 128, "rootfs_gb": 1}
    ready = {"name": "default", "description": "", "state": "ready"}
    assert default == {**ready, **size, "sizes": [size]}
    assert (data["description"], data["sizes"], data["vcpus"]) == ('numpy "and" more', [], 2)
    assert (bad["name"], bad["state"]) == ("bad", "failed") and "template.conf:1" in bad["why"]


def test_documentation_has_every_failure() -> None:
    document = (REPO / "docs/api.md").read_text()
    names = (REPO / "orchestrator/config/failure.c").read_text()
    statuses = (REPO / "orchestrator/http/status.c").read_text()
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


def test_metrics_count_requests(start: Callable[..., Service]) -> None:
    server = start()
    with server.client() as http:
        http.post(made(http) + "/exec", json={"code": "out x"})
        http.get("/nothing")
    metrics = server.metrics()
    assert metrics["ramet_creates_total"] == 1
    assert metrics["ramet_sandboxes"] == 1
    assert metrics['ramet_http_requests_total{method="",route="",status="4xx"}'] == 1
    route = 'method="POST",route="/v1/sandboxes/{id}/exec",status="2xx"'
    assert metrics[f"ramet_http_requests_total{{{route}}}"] == 1
    assert metrics["ramet_exec_seconds_count"] == 1
    assert metrics['ramet_exec_seconds_bucket{le="+Inf"}'] == 1


@pytest.mark.parametrize("http2", [False, True])
def test_access_log_has_each_request(start: Callable[..., Service], http2: bool) -> None:
    server = start()
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    with server.client(http2=http2) as http:
        box = made(http)
        http.post(box + "/exec?x=secret", json={"code": "out x"}, headers={"traceparent": trace})
        http.get("/v1/healthz")
        http.get("/nowhere%7f%0a")
    lines = server.whole_log().splitlines()
    exec_line = next(line for line in lines if "/exec" in line)
    logged = rf"POST {box}/exec 200 \d+ bytes \d+\.\d{{3}} ms from 127.0.0.1 tenant local"
    assert re.search(rf"{logged} trace {trace}$", exec_line)
    assert not any("healthz" in line or "secret" in line for line in lines)
    assert any("GET /nowhere%7f%0a 404" in line for line in lines)


def test_traceparent_is_in_replay(client: httpx.Client, box: str) -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
    for value in (trace, "garbage", trace.upper().replace("1", "G")):
        client.post(box + "/exec", json={"code": ""}, headers={"traceparent": value})
    events = [json.loads(x) for x in client.get(box + "/replay").text.splitlines()]
    assert [e.get("traceparent") for e in events] == [trace, None, None]
    assert [e["seq"] for e in events] == [1, 2, 3]


@pytest.mark.parametrize("method,path", [("POST", "/v1/sandboxes"), ("GET", "/v1/sandboxes")])
def test_web_pages_are_refused(client: httpx.Client, method: str, path: str) -> None:
    page = client.request(method, path, headers={"origin": "https://evil.example"})
    refused(page, 403, "browser_refused")
    rebound = client.request(method, path, headers={"host": "evil.example"})
    assert "evil.example" in refused(rebound, 403, "host_refused")
    assert client.request(method, path, headers={"host": "localhost:7070"}).is_success
    assert client.get("/v1/healthz", headers={"host": "evil.example"}).text == "ok"


def test_the_host_of_an_absolute_target_counts(server: Service) -> None:
    for host, status in (("evil.example", b"403"), ("localhost", b"200"), ("[::1]evil", b"403")):
        answer = server.raw(
            f"GET http://{host}/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        assert answer[9:12] == status, answer
