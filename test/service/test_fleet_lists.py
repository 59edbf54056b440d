# SPDX-License-Identifier: Apache-2.0
"""Lists over all hosts of a fleet: whole, in pages, and with hosts that are away or lie. Their loads."""

from __future__ import annotations

import itertools
import ssl
import threading
import time
from typing import Any, Callable, Iterator

import httpx
import pytest

from conftest import made, refused
from fleet import CELL, Fleet, Liar, Silent, pair, read_head
from stand_in import pause
from test_pages import NEXT, crc32c, ids
from test_spaces import frozen

ONE, TWO = 17, 18
MISSING = "ramet-missing-hosts"
# A host that did not answer is left alone for a while, so each liar is another one.
NUMBERS = itertools.count(30)
Lie = Callable[..., str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    yield from pair(tmp_path_factory.mktemp("fleet"), ONE, TWO)


@pytest.fixture
def one(fleet: Fleet) -> Iterator[httpx.Client]:
    """A client of the first host. The fleet has nothing after a test."""
    with fleet.services[ONE].client() as http:
        yield http
        fleet.services[ONE].clear(http)


@pytest.fixture
def two(fleet: Fleet) -> Iterator[httpx.Client]:
    with fleet.services[TWO].client() as http:
        yield http


@pytest.fixture
def add(fleet: Fleet) -> Iterator[Callable[..., str]]:
    """Adds a host to the tables, until the end of the test, and returns its name."""
    added: list[int] = []

    def start(number: int = 0, **fields: Any) -> str:
        added.append(number or next(NUMBERS))
        fleet.add(added[-1], **fields)
        written(fleet)
        return f"h{added[-1]}"

    yield start
    for number in added:
        del fleet.hosts[number]
    written(fleet)


@pytest.fixture
def lie(fleet: Fleet, add: Callable[..., str]) -> Iterator[Lie]:
    """Starts a host with the highest number that lies, and returns its name."""
    liars: list[Liar] = []

    def start(serve: Callable[[ssl.SSLSocket], None]) -> str:
        number = next(NUMBERS)
        liars.append(fleet.lie(number, serve))
        return add(number)

    yield start
    for liar in liars:
        liar.close()


def written(fleet: Fleet) -> None:
    """Writes the tables, and waits until the services have read them."""
    fleet.markers += 1
    marker = f"r{fleet.markers}"
    fleet.add(ONE, region=marker)
    fleet.write()
    for service in fleet.services.values():
        with service.client() as http:
            while marker not in [region["name"] for region in http.get("/v1/regions").json()]:
                pause()


def head(body: bytes, status: str = "200 OK", **fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def saying(*answers: bytes, asked: list[bytes] | None = None) -> Callable[[ssl.SSLSocket], None]:
    """Gives the answers, and the last one again and again."""
    left = list(answers)

    def serve(s: ssl.SSLSocket) -> None:
        while True:
            request = read_head(s)
            if asked is not None:
                asked.append(request)
            s.sendall(left.pop(0) if len(left) > 1 else left[0])

    return serve


def cursor(letter: str, key: bytes) -> str:
    text = letter.encode() + key.hex().encode()
    return (text + b"%08x" % crc32c(text)).decode()


def pages(client: httpx.Client, path: str, limit: int, **filters: str) -> list[Any]:
    """Returns all entries, read in pages; a page may be empty."""
    entries: list[Any] = []
    more: dict[str, str] = {}
    while True:
        answer = client.get(path, params={"limit": str(limit)} | filters | more)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()) <= limit and MISSING not in answer.headers
        entries += answer.json()
        if NEXT not in answer.headers:
            return entries
        more = {"cursor": answer.headers[NEXT]}


# --- all hosts live ---


def test_lists_have_what_all_hosts_have(fleet: Fleet, one: httpx.Client, two: httpx.Client) -> None:
    mine, others = [], []
    for _ in range(3):
        others.append(made(two)[-36:])
        mine.append(made(one)[-36:])
    spaces = [frozen(client) for client in (two, one)]
    checkpoints = [
        client.post(f"/v1/sandboxes/{box}/checkpoints", json={}).json()["id"]
        for client, box in ((two, others[0]), (one, mine[0]))
    ]
    for client in (one, two):
        answer = client.get("/v1/sandboxes")
        assert ids(answer.json()) == mine + others  # by the hosts' numbers, then oldest first
        assert NEXT not in answer.headers and MISSING not in answer.headers
        assert [s["id"][-36:] for s in client.get("/v1/spaces").json()] == [s[-36:] for s in spaces[::-1]]
        assert ids(client.get("/v1/checkpoints").json()) == checkpoints[::-1]
        head = client.head("/v1/sandboxes")
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("limit", [1, 2, 3, 1000, 10**9])
def test_pages_add_up_to_the_list(one: httpx.Client, two: httpx.Client, limit: int) -> None:
    boxes = [made(client, metadata={"n": n})[-36:] for client in (one, two) for n in range(3)]
    for client in (one, two):
        assert ids(pages(client, "/v1/sandboxes", limit)) == boxes
        assert ids(pages(client, "/v1/sandboxes", limit, metadata='{"n":1}')) == boxes[1::3]
    assert "n" in refused(one.get("/v1/sandboxes?metadata={"), 400, "bad_request")


def test_pages_are_read_from_any_host_while_sandboxes_come_and_go(one: httpx.Client, two: httpx.Client) -> None:
    boxes = [made(client)[-36:] for client in (one, two) for _ in range(4)]
    clients = itertools.cycle((one, two))
    listed: list[str] = []
    more: dict[str, str] = {}
    while True:
        answer = next(clients).get("/v1/sandboxes", params={"limit": "2"} | more)
        listed += ids(answer.json())
        if NEXT not in answer.headers:
            break
        more = {"cursor": answer.headers[NEXT]}
        one.delete(f"/v1/sandboxes/{listed[-1]}")  # the cursor's own entry
    assert listed == boxes


def test_children_of_another_hosts_sandbox(one: httpx.Client, two: httpx.Client) -> None:
    """They are on one host: that list is passed on as a whole."""
    parent = made(two)
    for child in two.post(f"{parent}/fork", json={"n": 5}).json()["children"]:
        two.patch(f"/v1/sandboxes/{child}", json={"metadata": {"note": "x" * 16000}})
    assert len(one.get(f"{parent}/children").json()) == 5


def test_long_lists(fleet: Fleet, one: httpx.Client, two: httpx.Client) -> None:
    note = {"note": "x" * 16000}
    boxes = [made(client, metadata=note)[-36:] for client in (one, two) for _ in range(10)]
    for client in (one, two):
        whole = client.get("/v1/sandboxes")
        assert ids(whole.json()) == boxes and "content-length" not in whole.headers
        page = client.get("/v1/sandboxes?limit=1000")
        assert 0 < len(page.json()) < 20 and NEXT in page.headers  # of 256 KiB, not of 1,000 entries
        assert ids(pages(client, "/v1/sandboxes", 1000)) == boxes
        head = client.head("/v1/sandboxes")
        assert (head.status_code, head.content) == (200, b"")
    with fleet.services[ONE].client(http2=True) as http2:
        assert ids(http2.get("/v1/sandboxes").json()) == boxes


def test_peer_gets_only_what_the_host_has_itself(fleet: Fleet, one: httpx.Client, two: httpx.Client) -> None:
    here = [made(one, metadata={"note": "x" * 16000})[-36:] for _ in range(4)]
    made(two)
    with fleet.peer(ONE, of=TWO) as peer:
        first = peer.get("/v1/sandboxes")
        rest = peer.get("/v1/sandboxes", params={"cursor": first.headers[NEXT], "limit": 1000})
    assert ids(first.json()) + ids(rest.json()) == here and NEXT not in rest.headers
    assert len(first.content) < 64 << 10


# --- prunes ---


def checkpointed(client: httpx.Client, n: int = 3) -> tuple[str, list[str]]:
    """Makes a sandbox, and returns its path and its checkpoints."""
    box = made(client)
    return box, [client.post(f"{box}/checkpoints", json={}).json()["id"] for _ in range(n)]


def prune(client: httpx.Client, **body: Any) -> httpx.Response:
    answer = client.post("/v1/checkpoints/prune", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_prune_is_of_all_hosts(one: httpx.Client, two: httpx.Client) -> None:
    kept, gone = [], []
    for client in (one, two):
        *old, last = checkpointed(client)[1]
        gone += old
        kept.append(last)
    for dry in (True, False):
        answer = prune(two, keep=1, dry_run=dry)  # of each host
        assert sorted(answer.json()["checkpoints"]) == sorted(gone)
        assert MISSING not in answer.headers
        assert ids(one.get("/v1/checkpoints").json()) == ([*gone[:2], kept[0], *gone[2:], kept[1]] if dry else kept)


def test_prune_of_a_sandbox_is_its_hosts(one: httpx.Client, two: httpx.Client) -> None:
    mine, (box, others) = checkpointed(one)[1], checkpointed(two)
    answer = prune(one, keep=1, sandbox=box[-36:])
    assert sorted(answer.json()["checkpoints"]) == sorted(others[:2])
    assert ids(one.get("/v1/checkpoints").json()) == [*mine, others[2]]


def test_prune_of_a_sandbox_of_a_host_that_is_away(one: httpx.Client, fleet: Fleet, add: Callable[..., str]) -> None:
    add(99)
    body = {"keep": 1, "sandbox": fleet.make_id(99)}
    refused(one.post("/v1/checkpoints/prune", json=body), 503, "host_unreachable")


def test_prune_names_hosts_that_are_away_or_lie(one: httpx.Client, add: Callable[..., str], lie: Lie) -> None:
    gone = checkpointed(one, 2)[1][:1]
    chk = "chk_" + "a" * 32
    good = f'{{"checkpoints":["{chk}"],"bytes":{10**12}}}'.encode()
    asked: list[bytes] = []
    lie(saying(head(good) + good, asked=asked))
    bad = [b"", b"{}", b'{"checkpoints":["x\\"y"],"bytes":1}', b'{"checkpoints":["' + chk.encode() + b'"],"bytes":-1}']
    names = [add()] + [lie(saying(head(body) + body)) for body in bad]
    answer = prune(one, keep=1)
    assert sorted(answer.json()["checkpoints"]) == sorted([*gone, chk])
    assert answer.json()["bytes"] > 10**12
    assert answer.headers[MISSING].split(", ") == sorted(names, key=lambda name: int(name[1:]))
    assert asked[0].startswith(b"POST /v1/checkpoints/prune HTTP/1.1\r\n") and b'{"keep":1}' in b"".join(asked)


# --- cursors ---


def test_hostile_cursors_are_refused(fleet: Fleet, one: httpx.Client) -> None:
    made(one)
    made(one)
    good = one.get("/v1/sandboxes?limit=1").headers[NEXT]
    key = bytes.fromhex(good[1:-8])
    assert len(key) == 40 and good[0] == "S"
    assert one.get("/v1/sandboxes", params={"cursor": good}).status_code == 200

    def at(host: int, cell: int = CELL) -> bytes:
        return bytes.fromhex(fleet.make_id(host, cell=cell)[4:])

    for bad in (
        cursor("s", key[16:]),  # of one host's list
        cursor("S", key[16:]),
        cursor("S", key + b"\0"),
        cursor("P", key),
        cursor("S", at(ONE, cell=CELL + 1) + key[16:]),
        good[:-1] + ("0" if good[-1] != "0" else "1"),
    ):
        answer = one.get("/v1/sandboxes", params={"cursor": bad})
        assert "cursor" in refused(answer, 400, "bad_request"), bad
    # Any position of a host is one, and hosts that do not exist are passed over.
    first, last = b"\0" * 24, b"\x7f" + b"\xff" * 23
    for host, position, n in ((ONE, last, 0), (ONE, first, 2), (0, last, 2), (TWO, first, 0), (0xFFFFF, first, 0)):
        answer = one.get("/v1/sandboxes", params={"cursor": cursor("S", at(host) + position)})
        assert (answer.status_code, len(answer.json())) == (200, n)


def test_cursors_do_not_tell_the_host(one: httpx.Client) -> None:
    made(one)
    made(one)
    seen = {one.get("/v1/sandboxes?limit=1").headers[NEXT][1:33] for _ in range(3)}
    assert len(seen) == 3


# --- hosts that are away ---


def test_host_that_is_away_is_named(one: httpx.Client, add: Callable[..., str]) -> None:
    box = made(one)[-36:]
    away = add()
    for path in ("/v1/sandboxes", "/v1/sandboxes?limit=10", "/v1/spaces", "/v1/checkpoints"):
        answer = one.get(path)
        assert answer.headers[MISSING] == away and NEXT not in answer.headers
        assert ids(answer.json()) == ([box] if "sandboxes" in path else [])


def test_lost_host_is_not_asked(one: httpx.Client, add: Callable[..., str]) -> None:
    """Its sandboxes count as lost: 404."""
    add(gone=1)
    assert MISSING not in one.get("/v1/sandboxes").headers


def test_many_hosts_that_are_away_end_a_page(one: httpx.Client, fleet: Fleet) -> None:
    """Pages go on behind them. Long lists of names are cut."""
    box = made(one)[-36:]
    numbers = range(100, 170)
    for number in numbers:
        fleet.add(number)
    written(fleet)
    page = one.get("/v1/sandboxes?limit=5")
    assert ids(page.json()) == [box] and NEXT in page.headers  # after 64 questions
    rest = one.get("/v1/sandboxes", params={"limit": 5, "cursor": page.headers[NEXT]})
    assert rest.json() == [] and NEXT not in rest.headers
    whole = one.get("/v1/sandboxes")
    for number in numbers:
        del fleet.hosts[number]
    written(fleet)
    names = [f"h{number}" for number in numbers]
    assert page.headers[MISSING].split(", ") == names[:50] + ["and 12 more"]
    assert rest.headers[MISSING].split(", ") == names[62:]
    assert ids(whole.json()) == [box] and whole.headers[MISSING].split(", ") == names[:50] + ["and 20 more"]


# --- hosts that lie ---

LIES = [
    b"",
    b"SSH-2.0-x\r\n\r\n",
    head(b"no") + b"no",
    head(b"{}") + b"{}",
    head(b"[1]") + b"[1]",
    head(b"[{}") + b"[{}",
    head(b"[{}]]") + b"[{}]]",
    head(b'[],"entries":[]') + b'[],"entries":[]',
    head(b"[" + b"{}," * 1000 + b"{}]") + b"[" + b"{}," * 1000 + b"{}]",
    head(b"x" * 300_000) + b"x" * 300_000,
    head(b'["\xff"]') + b'["\xff"]',
    head(b"[]", status="401 Unauthorized") + b"[]",
    head(b"[]", status="500 Oops") + b"[]",
    head(b"[{}]", ramet_next_cursor="x") + b"[{}]",
    head(b"[{}]", ramet_next_cursor="s" * 1000) + b"[{}]",
    head(b"[{}]", ramet_next_cursor=cursor("s", b"\0" * 24)) + b"[{}]",  # it would never end
    head(b"[{}]", ramet_next_cursor=cursor("p", b"\1" * 24)) + b"[{}]",
]


@pytest.mark.parametrize("said", LIES, ids=range(len(LIES)))
def test_garbage_is_left_out(fleet: Fleet, one: httpx.Client, lie: Lie, said: bytes) -> None:
    box = made(one)[-36:]
    name = lie(saying(said))
    answer = one.get("/v1/sandboxes")
    assert answer.status_code == 200 and ids(answer.json()) == [box]
    assert answer.headers[MISSING] == name
    fleet.services[ONE].until_idle()


def test_parts_without_entries_and_without_end(one: httpx.Client, lie: Lie) -> None:
    parts = itertools.count(1)

    def serve(s: ssl.SSLSocket) -> None:
        while True:
            read_head(s)
            s.sendall(head(b"[]", ramet_next_cursor=cursor("s", next(parts).to_bytes(8, "big") + bytes(16))) + b"[]")

    name = lie(serve)
    assert NEXT in one.get("/v1/sandboxes?limit=5").headers  # the client may go on
    assert one.get("/v1/sandboxes").headers[MISSING] == name


@pytest.mark.parametrize("query", ["", "?limit=5"])
def test_slow_parts_without_entries_do_not_hold_a_list(one: httpx.Client, lie: Lie, query: str) -> None:
    """Each comes in time, but not all that could follow are waited for."""
    parts = itertools.count(1)

    def serve(s: ssl.SSLSocket) -> None:
        while True:
            read_head(s)
            time.sleep(0.4)
            s.sendall(head(b"[]", ramet_next_cursor=cursor("s", next(parts).to_bytes(8, "big") + bytes(16))) + b"[]")

    name = lie(serve)
    answer = one.get(f"/v1/sandboxes{query}")
    assert name in answer.headers[MISSING].split(", ") and NEXT not in answer.headers


def test_page_has_no_more_entries_than_its_limit(one: httpx.Client, lie: Lie) -> None:
    made(one)
    name = lie(saying(head(b"[{},{}]") + b"[{},{}]"))
    assert MISSING not in one.get("/v1/sandboxes?limit=3").headers
    answer = one.get("/v1/sandboxes?limit=2")
    assert len(answer.json()) == 1 and answer.headers[MISSING] == name


def test_host_that_stalls_is_left_out(fleet: Fleet, one: httpx.Client, lie: Lie) -> None:
    hold = threading.Event()

    def serve(s: ssl.SSLSocket) -> None:
        read_head(s)
        s.sendall(head(b"[]")[:-2])
        hold.wait(60)

    name = lie(serve)
    assert one.get("/v1/sandboxes").headers[MISSING] == name
    hold.set()
    fleet.services[ONE].until_idle()


@pytest.mark.parametrize("query", ["", "?limit=9"])
def test_hosts_are_asked_at_once(one: httpx.Client, lie: Lie, query: str) -> None:
    """Each of these answers when all were asked."""
    all_asked = threading.Barrier(3)

    def serve(s: ssl.SSLSocket) -> None:
        read_head(s)
        all_asked.wait(60)
        s.sendall(head(b"[{}]") + b"[{}]")

    for _ in range(3):
        lie(serve)
    answer = one.get(f"/v1/sandboxes{query}")
    assert len(answer.json()) == 3 and MISSING not in answer.headers


def test_host_that_had_too_much_for_the_page_is_asked_again(one: httpx.Client, two: httpx.Client, lie: Lie) -> None:
    """It was asked before the page had the entries of another host."""
    boxes = [made(one)[-36:] for _ in range(2)]
    asked: list[bytes] = []
    rest = cursor("s", b"\0" * 7 + b"\5" + b"\1" * 16)
    lie(saying(head(b"[{},{},{}]") + b"[{},{},{}]", head(b"[{},{}]", ramet_next_cursor=rest) + b"[{},{}]", asked=asked))
    answer = two.get("/v1/sandboxes?limit=4")
    assert ids(answer.json()[:2]) == boxes and len(answer.json()) == 4
    assert NEXT in answer.headers and MISSING not in answer.headers
    assert [b"limit=4&" in asked[0], b"limit=2&" in asked[1]] == [True, True]


def test_host_that_is_slow_for_a_tenant_is_left_alone_for_it_only(tmp_path_factory: pytest.TempPathFactory) -> None:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    service = fleet.start(ONE, "key=admin")
    with service.client(headers={"authorization": f"Bearer {service.keys[0]}"}) as http:
        keys = [http.post("/v1/keys", json={"name": "a key", "tier": "free"}).json()["key"] for _ in range(2)]
    left = threading.Event()

    def serve(s: ssl.SSLSocket) -> None:
        if keys[0].encode() in read_head(s):
            left.wait(60)
        s.sendall(head(b"[{}]") + b"[{}]")

    liar = fleet.lie(TWO, serve)
    slow, quick = (service.client(headers={"authorization": f"Bearer {key}"}) for key in keys)
    while MISSING not in slow.get("/v1/sandboxes").headers:
        pause()  # the table is read soon
    left.set()
    answer = quick.get("/v1/sandboxes")
    assert answer.json() == [{}] and MISSING not in answer.headers
    liar.close()
    fleet.stop()


def test_client_that_leaves_ends_the_question(fleet: Fleet, lie: Lie) -> None:
    silent = Silent()
    lie(silent)
    silent.ends_with(fleet.services[ONE], b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n")


def test_what_a_host_is_asked(one: httpx.Client, lie: Lie) -> None:
    """The client's key and filter, and a part that fits into the page."""
    asked: list[bytes] = []
    rest = cursor("s", b"\0" * 7 + b"\5" + b"\1" * 16)
    more, last = head(b'[{"id":"a"}]', ramet_next_cursor=rest) + b'[{"id":"a"}]', head(b'[{"id":"b"}]') + b'[{"id":"b"}]'
    lie(saying(more, last, asked=asked))
    made(one)
    answer = one.request(
        "GET",
        "/v1/sandboxes?limit=7&template=default&metadata=%7B%7D",
        headers={"authorization": "Bearer secret"},
    )
    assert ids(answer.json())[1:] == ["a", "b"]
    first, second = (one.split(b"\r\n")[0].decode() for one in asked)
    assert first == f"GET /v1/sandboxes?limit=6&cursor={cursor('s', bytes(24))}&template=default&metadata=%7B%7D HTTP/1.1"
    assert second == f"GET /v1/sandboxes?limit=5&cursor={rest}&template=default&metadata=%7B%7D HTTP/1.1"
    assert all(b"\r\nauthorization: Bearer secret\r\n" in one for one in asked)


def test_endless_list_waits_for_its_reader(fleet: Fleet, lie: Lie) -> None:
    """Its memory is that of a few parts."""
    parts = [0]
    body = b'[{"x":"' + b"x" * 60_000 + b'"}]'

    def serve(s: ssl.SSLSocket) -> None:
        while True:
            read_head(s)
            parts[0] += 1
            more = cursor("s", parts[0].to_bytes(8, "big") + bytes(16))
            s.sendall(head(body, ramet_next_cursor=more) + body)

    lie(serve)
    entry = fleet.services[ONE]
    before = entry.rss()
    with entry.connect(slow=True) as s:
        s.sendall(b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert s.recv(100)
        entry.until_same(lambda: parts[0])
        assert parts[0] > 1 and entry.rss() - before < 16 << 20
    entry.until_idle()


def test_host_that_fails_in_a_long_list(one: httpx.Client, two: httpx.Client, lie: Lie) -> None:
    """The answer is cut off, since its head is sent; the next one names the host."""
    note = {"note": "x" * 16000}
    boxes = [made(two, metadata=note)[-36:] for _ in range(8)]
    name = lie(saying(b""))
    with pytest.raises(httpx.TransportError):
        one.get("/v1/sandboxes")
    again = one.get("/v1/sandboxes")
    assert ids(again.json()) == boxes and again.headers[MISSING] == name


# --- loads, for operators ---


def test_hosts_say_how_many_sandboxes_they_have(
    fleet: Fleet, one: httpx.Client, two: httpx.Client, lie: Lie, add: Callable[..., str]
) -> None:
    """Those that don't are missing."""
    for client in (one, two, two):
        made(client)
    add()
    load = "640 0 0 0 0 0 0 0 0 0 7 4096"
    good = lie(saying(head(b"ok", ramet_load=load) + b"ok"))
    lie(saying(head(b"ok", ramet_load="no") + b"ok"))
    for service in (fleet.services[ONE], fleet.services[TWO]):
        lines = [line.split() for line in service.tell("loads").split(",")[:-1]]
        assert {number: n for number, n, _ in lines} == {str(ONE): "1", str(TWO): "2", good[1:]: "7"}
        assert all(int(mib) > 0 for _, _, mib in lines)
