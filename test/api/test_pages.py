# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: limit, cursor, and lists sent in chunks."""

from __future__ import annotations

from typing import Any, Callable

import httpx
import pytest

from conftest import Server
from test_routes import NOBODY, made, refused
from test_spaces import frozen

NEXT = "ramet-next-cursor"


def pages(http: httpx.Client, path: str, limit: int, between: Callable[[], Any] = lambda: 0) -> list[Any]:
    """Returns all entries, read in pages; `between` is called after each page."""
    answer = http.get(path, params={"limit": limit})
    entries: list[Any] = answer.json()
    assert len(entries) <= limit
    while NEXT in answer.headers:
        between()
        answer = http.get(path, params={"limit": limit, "cursor": answer.headers[NEXT]})
        assert answer.status_code == 200, answer.text
        assert 0 < len(answer.json()) <= limit
        entries += answer.json()
    return entries


def ids(entries: list[Any]) -> list[str]:
    return [entry["id"] for entry in entries]


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 1000, 10**9])
def test_pages_of_sandboxes_add_up_to_the_list(http: httpx.Client, limit: int) -> None:
    for _ in range(8):
        made(http)
    whole = http.get("/v1/sandboxes")
    assert NEXT not in whole.headers
    assert pages(http, "/v1/sandboxes", limit) == whole.json()
    assert len(whole.json()) == 8


def test_pages_of_spaces_add_up_to_the_list(http: httpx.Client) -> None:
    for _ in range(5):
        frozen(http)
    assert pages(http, "/v1/spaces", 2) == http.get("/v1/spaces").json()


def test_pages_of_children(http: httpx.Client) -> None:
    parent = made(http)
    children = http.post(parent + "/fork", json={"n": 5}).json()["children"]
    made(http)
    assert ids(pages(http, parent + "/children", 2)) == children
    assert ids(http.get(parent + "/children").json()) == children
    assert http.get("/v1/sandboxes/" + children[0] + "/children").json() == []
    refused(http.get(NOBODY + "/children"), 404, "not_found")


def test_pages_of_templates(http: httpx.Client) -> None:
    whole = http.get("/v1/templates").json()
    assert pages(http, "/v1/templates", 1) == whole
    assert [entry["name"] for entry in whole] == ["default", "data"]


def test_changes_between_pages_do_not_move_other_entries(http: httpx.Client) -> None:
    """Unchanged entries are returned exactly once; the cursor's own entry may be gone."""
    before = [made(http)[-36:] for _ in range(12)]
    gone = iter(before[2::3])

    def change() -> None:
        made(http)
        http.delete("/v1/sandboxes/" + next(gone, "sbx_" + "f" * 32))

    listed = ids(pages(http, "/v1/sandboxes", 3, change))
    assert len(listed) == len(set(listed))
    assert set(before) - set(before[2::3]) <= set(listed)


def test_cursor_without_limit_returns_the_rest(http: httpx.Client) -> None:
    listed = [made(http)[-36:] for _ in range(4)]
    cursor = http.get("/v1/sandboxes?limit=1").headers[NEXT]
    rest = http.get("/v1/sandboxes", params={"cursor": cursor})
    assert ids(rest.json()) == listed[1:]
    assert NEXT not in rest.headers


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/spaces", "/v1/templates"])
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("limit=0", 'limit must be a whole number from 1 to 2^53, not "0"'),
        ("limit=-1", "limit must be"),
        ("limit=ten", 'limit must be a whole number from 1 to 2^53, not "ten"'),
        ("limit=", "limit must be"),
        ("limit=1&limit=2", "limit is in the query twice"),
        ("cursor=", "cursor must be"),
        ("cursor=x", "cursor must be"),
        ("cursor=" + "a" * 5000, "cursor in the query is longer than"),
        ("cursor=%00", "cursor in the query"),
        ("cursor=s" + "0" * 48 + "00000000", "mistyped or cut off"),
        ("cursor=s" + "0" * 47 + "00000000", "cursor must be"),
    ],
)
def test_invalid_queries_are_refused(http: httpx.Client, path: str, query: str, names: str) -> None:
    assert names in refused(http.get(f"{path}?{query}"), 400, "bad_request")


def test_cursor_of_another_list_is_refused(http: httpx.Client) -> None:
    for _ in range(2):
        made(http)
        frozen(http)
    parent = made(http)
    http.post(parent + "/fork", json={"n": 2})
    lists = ("/v1/sandboxes", "/v1/spaces", "/v1/templates", parent + "/children")
    cursors = [http.get(path + "?limit=1").headers[NEXT] for path in lists]
    for i, path in enumerate(lists):
        for j, cursor in enumerate(cursors):
            answer = http.get(path, params={"cursor": cursor})
            if i == j:
                assert answer.status_code == 200
            else:
                assert "cursor" in refused(answer, 400, "bad_request")


def test_cursor_with_a_key_of_another_length_is_refused(http: httpx.Client) -> None:
    text = b"s" + b"00" * 23
    cursor = (text + b"%08x" % crc32c(text)).decode()
    assert "too short" in refused(http.get(f"/v1/sandboxes?cursor={cursor}"), 400, "bad_request")


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_long_list_is_sent_in_chunks(http: httpx.Client) -> None:
    """Many chunks of 64 KiB, complete and in order, over both versions of HTTP."""
    note = {"note": "x" * 16000}
    for _ in range(40):
        http.post("/v1/sandboxes", json={"metadata": note})
    whole = http.get("/v1/sandboxes")
    assert len(whole.content) > 600_000
    assert ids(whole.json()) == sorted(ids(whole.json()))
    assert len(whole.json()) == 40
    page = http.get("/v1/sandboxes?limit=30")
    assert page.json() == whole.json()[:30]
    assert NEXT in page.headers
    head = http.head("/v1/sandboxes?limit=30")
    assert (head.status_code, head.content, head.headers[NEXT]) == (200, b"", page.headers[NEXT])


def test_list_ends_where_it_ended_at_the_request(
    http: httpx.Client, server: Server
) -> None:
    """A slow reader gets no entry twice, no new one, and none that was deleted meanwhile."""
    note = {"note": "x" * 16000}
    with server.slow_client() as slow:
        before = [
            slow.post("/v1/sandboxes", json={"metadata": note}).json()["id"] for _ in range(400)
        ]
        with slow.stream("GET", "/v1/sandboxes") as stream:
            chunks = stream.iter_raw()
            first = next(chunks)
            for _ in range(3):
                made(http)
            http.delete("/v1/sandboxes/" + before[-1])
            listed = ids(httpx.Response(200, content=first + b"".join(chunks)).json())
    assert listed == before[:-1]


def test_list_ends_when_its_client_leaves(
    http: httpx.Client, server: Server
) -> None:
    note = {"note": "x" * 16000}
    for _ in range(400):
        http.post("/v1/sandboxes", json={"metadata": note})
    with server.slow_client() as slow, slow.stream("GET", "/v1/sandboxes") as stream:
        next(stream.iter_raw())
    server.wait(lambda f: f["ramet_http_requests_live"] == 1)
    assert http.get("/v1/sandboxes?limit=1").status_code == 200


def test_replay_has_a_limit(http: httpx.Client, sandbox: str) -> None:
    http.post(sandbox + "/exec", json={"code": "out a\nout b\nout c"})
    seqs: list[int] = []
    while events := http.get(sandbox + "/replay", params={"limit": 3, "since": max(seqs, default=0)}):
        lines = [httpx.Response(200, content=x).json() for x in events.text.splitlines()]
        if not lines:
            break
        assert len(lines) <= 3
        seqs += [line["seq"] for line in lines]
    assert seqs == [1, 2, 3, 4]
    refused(http.get(sandbox + "/replay?limit=0"), 400, "bad_request")
    assert "follow" in refused(http.get(sandbox + "/replay?limit=1&follow=1"), 400, "bad_request")


def test_list_of_one_chunk_is_not_streamed(http: httpx.Client) -> None:
    for _ in range(100):
        made(http)
    answer = http.get("/v1/sandboxes")
    assert len(answer.json()) == 100
    assert int(answer.headers["content-length"]) == len(answer.content)


def fitting(http: httpx.Client, **filters: Any) -> list[str]:
    answer = http.get("/v1/sandboxes", params=filters)
    assert answer.status_code == 200, answer.text
    return ids(answer.json())


def test_list_is_filtered(http: httpx.Client) -> None:
    one = made(http, template="data", metadata={"run": 7, "who": "tëst", "deep": {"a": 1}})[-36:]
    two = made(http, metadata={"run": 7.0, "done": True, "none": None})[-36:]
    three = made(http, metadata={"run": "7"})[-36:]
    for filters, expected in (
        ({"state": "ready"}, [one, two, three]),
        ({"state": "running"}, []),
        ({"template": "data"}, [one]),
        ({"template": "dat"}, []),
        ({"metadata": "{}"}, [one, two, three]),
        ({"metadata": '{"run":7}'}, [one, two]),
        ({"metadata": ' { "run" : 70e-1 , "who":"t\\u00ebst"} '}, [one]),
        ({"metadata": '{"run":"7"}'}, [three]),
        ({"metadata": '{"done":true,"none":null}'}, [two]),
        ({"metadata": '{"done":false}'}, []),
        ({"metadata": '{"deep":1}'}, []),
        ({"metadata": '{"run":7}', "template": "default"}, [two]),
        ({"created_after": "2023-11-14T22:13:20.122Z"}, [one, two, three]),
        ({"created_after": "2023-11-14T22:13:20.123Z"}, []),
        ({"created_before": "2023-11-14T22:13:20.123Z"}, []),
        ({"created_before": "2023-11-14T22:13:21Z"}, [one, two, three]),
        ({"created_after": "2023-11-14T22:13:20Z", "created_before": "2024-02-29T00:00:00Z"}, [one, two, three]),
    ):
        assert fitting(http, **filters) == expected, filters


@pytest.mark.parametrize("limit", [40, 300, None])
def test_few_fitting_sandboxes_of_many_are_found(http: httpx.Client, limit: int | None) -> None:
    """Chunks without any output do not end the answer."""
    wanted = [made(http, metadata={"n": n})[-36:] for n in range(300)][7::100]
    found: list[str] = []
    params: dict[str, Any] = {"limit": limit} if limit else {}
    for n in (7, 107, 207):
        cursor: dict[str, str] = {}
        while True:
            answer = http.get("/v1/sandboxes", params=params | cursor | {"metadata": f'{{"n":{n}}}'})
            found += ids(answer.json())
            if NEXT not in answer.headers:
                break
            cursor = {"cursor": answer.headers[NEXT]}
    assert found == wanted


@pytest.mark.parametrize(
    "field, value",
    [
        ("state", "gone"),
        ("state", "x" * 16),
        ("template", "x" * 64),
        ("created_after", "yesterday"),
        ("created_after", "2023-02-30T00:00:00Z"),
        ("created_before", "2023-11-14T22:13:20.1Z"),
        ("created_before", "2023-11-14T22:13:20"),
        ("metadata", "run"),
        ("metadata", "[]"),
        ("metadata", '{"run":7'),
        ("metadata", '{"run":7}}'),
        ("metadata", '{"run":7,}'),
        ("metadata", '{"run":{}}'),
        ("metadata", '{"run":"' + "x" * 4096 + '"}'),
    ],
)
def test_invalid_filter_is_refused(http: httpx.Client, field: str, value: str) -> None:
    assert field in refused(http.get("/v1/sandboxes", params={field: value}), 400, "bad_request")
