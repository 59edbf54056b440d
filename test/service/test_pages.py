# SPDX-License-Identifier: Apache-2.0
"""Lists in pages: limit, cursor, and lists sent in chunks."""

from __future__ import annotations

from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import NOBODY, Service, made, refused
from test_spaces import frozen

NEXT = "ramet-next-cursor"
MANY = 400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a second template."""
    home = tmp_path_factory.mktemp("server")
    template = home / "service/templates/data"
    template.mkdir(parents=True)
    (template / "template.conf").write_text("description = of a test\n")
    started = Service(home, "max_vms=64", agent=False)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, list[str]]]:
    """A service with so many sandboxes that sockets do not hold their list, and their ids."""
    started = Service(tmp_path_factory.mktemp("many"), f"max_vms={MANY + 16}", agent=False)
    with started.client() as http:
        note = "x" * 16000
        found = [made(http, metadata={"note": note, "n": n})[-36:] for n in range(MANY)]
    yield started, found
    started.stop()


def pages(client: httpx.Client, path: str, limit: int, between: Callable[[], Any] = lambda: 0) -> list[Any]:
    """Returns all entries, read in pages; `between` is called after each page."""
    answer = client.get(path, params={"limit": limit})
    entries: list[Any] = answer.json()
    assert len(entries) <= limit
    while NEXT in answer.headers:
        between()
        answer = client.get(path, params={"limit": limit, "cursor": answer.headers[NEXT]})
        assert answer.status_code == 200, answer.text
        assert 0 < len(answer.json()) <= limit
        entries += answer.json()
    return entries


def ids(entries: list[Any]) -> list[str]:
    return [entry["id"] for entry in entries]


@pytest.mark.parametrize("limit", [1, 3, 7, 8, 1000, 10**9])
def test_pages_of_sandboxes_add_up_to_the_list(client: httpx.Client, limit: int) -> None:
    for _ in range(8):
        made(client)
    whole = client.get("/v1/sandboxes")
    assert NEXT not in whole.headers
    assert ids(pages(client, "/v1/sandboxes", limit)) == ids(whole.json())  # what was measured may change
    assert len(whole.json()) == 8


def test_pages_of_spaces_add_up_to_the_list(client: httpx.Client) -> None:
    for _ in range(5):
        frozen(client)
    assert pages(client, "/v1/spaces", 2) == client.get("/v1/spaces").json()


def test_pages_of_children(client: httpx.Client) -> None:
    parent = made(client)
    children = client.post(parent + "/fork", json={"n": 5}).json()["children"]
    made(client)
    whole = ids(client.get(parent + "/children").json())
    assert sorted(whole) == sorted(children)
    assert ids(pages(client, parent + "/children", 2)) == whole
    assert client.get("/v1/sandboxes/" + children[0] + "/children").json() == []
    refused(client.get(NOBODY + "/children"), 404, "not_found")


def test_pages_of_templates(client: httpx.Client) -> None:
    whole = client.get("/v1/templates").json()
    assert pages(client, "/v1/templates", 1) == whole
    assert [entry["name"] for entry in whole] == ["default", "data"]


def test_changes_between_pages_do_not_move_other_entries(client: httpx.Client) -> None:
    """Unchanged entries are returned exactly once; the cursor's own entry may be gone."""
    before = [made(client)[-36:] for _ in range(12)]
    gone = iter(before[2::3])

    def change() -> None:
        made(client)
        client.delete("/v1/sandboxes/" + next(gone, "sbx_" + "f" * 32))

    listed = ids(pages(client, "/v1/sandboxes", 3, change))
    assert len(listed) == len(set(listed))
    assert set(before) - set(before[2::3]) <= set(listed)


def test_cursor_without_limit_returns_the_rest(client: httpx.Client) -> None:
    listed = [made(client)[-36:] for _ in range(4)]
    cursor = client.get("/v1/sandboxes?limit=1").headers[NEXT]
    rest = client.get("/v1/sandboxes", params={"cursor": cursor})
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
def test_invalid_queries_are_refused(client: httpx.Client, path: str, query: str, names: str) -> None:
    assert names in refused(client.get(f"{path}?{query}"), 400, "bad_request")


def test_cursor_of_another_list_is_refused(client: httpx.Client) -> None:
    for _ in range(2):
        made(client)
        frozen(client)
    parent = made(client)
    client.post(parent + "/fork", json={"n": 2})
    lists = ("/v1/sandboxes", "/v1/spaces", "/v1/templates", parent + "/children")
    cursors = [client.get(path + "?limit=1").headers[NEXT] for path in lists]
    for i, path in enumerate(lists):
        for j, cursor in enumerate(cursors):
            answer = client.get(path, params={"cursor": cursor})
            if i == j:
                assert answer.status_code == 200
            else:
                assert "cursor" in refused(answer, 400, "bad_request")


def test_cursor_with_a_key_of_another_length_is_refused(client: httpx.Client) -> None:
    text = b"s" + b"00" * 23
    cursor = (text + b"%08x" % crc32c(text)).decode()
    assert "too short" in refused(client.get(f"/v1/sandboxes?cursor={cursor}"), 400, "bad_request")


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("http2", [False, True])
def test_long_list_is_sent_in_chunks(many: tuple[Service, list[str]], http2: bool) -> None:
    """Many chunks of 64 KiB, complete and in order."""
    server, made_here = many
    with server.client(http2=http2) as http:
        whole = http.get("/v1/sandboxes")
        assert len(whole.content) > 600_000
        assert ids(whole.json()) == made_here
        page = http.get("/v1/sandboxes?limit=30")
        assert ids(page.json()) == made_here[:30]  # figures of memory change between the requests
        assert NEXT in page.headers
        head = http.head("/v1/sandboxes?limit=30")
        assert (head.status_code, head.content, head.headers[NEXT]) == (200, b"", page.headers[NEXT])


@pytest.mark.parametrize("limit", [40, 300, None])
def test_few_fitting_sandboxes_of_many_are_found(
    many: tuple[Service, list[str]], limit: int | None
) -> None:
    """Chunks without any output do not end the answer."""
    server, made_here = many
    params: dict[str, Any] = {"limit": limit} if limit else {}
    found: list[str] = []
    with server.client() as http:
        for n in (7, 107, 207):
            cursor: dict[str, str] = {}
            while True:
                answer = http.get("/v1/sandboxes", params=params | cursor | {"metadata": f'{{"n":{n}}}'})
                found += ids(answer.json())
                if NEXT not in answer.headers:
                    break
                cursor = {"cursor": answer.headers[NEXT]}
    assert found == [made_here[n] for n in (7, 107, 207)]


def test_list_ends_when_its_client_leaves(many: tuple[Service, list[str]]) -> None:
    server, _ = many
    with server.slow_client() as slow, slow.stream("GET", "/v1/sandboxes") as stream:
        next(stream.iter_raw())
    server.until_idle()


def test_list_ends_where_it_ended_at_the_request(many: tuple[Service, list[str]]) -> None:
    """A slow reader gets no entry twice, no new one, and none that was deleted meanwhile."""
    server, before = many
    with server.client() as http, server.slow_client() as slow:
        with slow.stream("GET", "/v1/sandboxes") as stream:
            chunks = stream.iter_raw()
            first = next(chunks)
            for _ in range(3):
                made(http)
            http.delete("/v1/sandboxes/" + before[-1])
            listed = ids(httpx.Response(200, content=first + b"".join(chunks)).json())
    assert listed == before[:-1]


def test_replay_has_a_limit(client: httpx.Client, box: str) -> None:
    client.post(box + "/exec", json={"code": "out a\nout b\nout c"})
    seqs: list[int] = []
    while events := client.get(box + "/replay", params={"limit": 3, "since": max(seqs, default=0)}):
        lines = [httpx.Response(200, content=x).json() for x in events.text.splitlines()]
        if not lines:
            break
        assert len(lines) <= 3
        seqs += [line["seq"] for line in lines]
    assert seqs == [1, 2, 3, 4]
    refused(client.get(box + "/replay?limit=0"), 400, "bad_request")
    assert "follow" in refused(client.get(box + "/replay?limit=1&follow=1"), 400, "bad_request")


def test_list_of_one_chunk_is_not_streamed(client: httpx.Client) -> None:
    for _ in range(40):
        made(client)
    answer = client.get("/v1/sandboxes")
    assert len(answer.json()) == 40
    assert int(answer.headers["content-length"]) == len(answer.content)


def fitting(client: httpx.Client, **filters: Any) -> list[str]:
    answer = client.get("/v1/sandboxes", params=filters)
    assert answer.status_code == 200, answer.text
    return ids(answer.json())


def test_list_is_filtered(client: httpx.Client) -> None:
    one = made(client, template="data", metadata={"run": 7, "who": "tëst", "deep": {"a": 1}})[-36:]
    two = made(client, metadata={"run": 7.0, "done": True, "none": None})[-36:]
    three = made(client, metadata={"run": "7"})[-36:]
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
    ):
        assert fitting(client, **filters) == expected, filters
    times = {entry["id"]: entry["created_at"] for entry in client.get("/v1/sandboxes").json()}
    for limit in times.values():
        later = [name for name, time in times.items() if time > limit]
        earlier = [name for name, time in times.items() if time < limit]
        assert fitting(client, created_after=limit) == later
        assert fitting(client, created_before=limit) == earlier
        assert fitting(client, created_after=limit, created_before="2999-02-28T00:00:00Z") == later


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
def test_invalid_filter_is_refused(client: httpx.Client, field: str, value: str) -> None:
    assert field in refused(client.get("/v1/sandboxes", params={field: value}), 400, "bad_request")
