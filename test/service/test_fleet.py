# SPDX-License-Identifier: Apache-2.0
"""Hosts of a fleet serve each other's sandboxes."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Callable, Iterator

import httpx
import pytest

from conftest import Service, made, refused
from fleet import Authority, Fleet, Liar, read_head
from stand_in import pause

ENTRY, OWNER, LIAR, AWAY = 17, 18, 19, 20


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two hosts with scripted agents, and a third one that lies."""
    started = Fleet(tmp_path_factory.mktemp("fleet"))
    started.add(AWAY, region="iad")  # creates of this region do not wait for it
    started.start(OWNER, others=(ENTRY, LIAR, AWAY))
    started.start(ENTRY)
    yield started
    started.stop()


@pytest.fixture
def entry(fleet: Fleet) -> Service:
    return fleet.services[ENTRY]


@pytest.fixture
def owner(fleet: Fleet) -> Service:
    return fleet.services[OWNER]


@pytest.fixture
def near(entry: Service) -> Iterator[httpx.Client]:
    """A client of the entry host, which has no sandboxes after a test."""
    with entry.client() as http:
        yield http
        entry.clear(http)


@pytest.fixture
def far(owner: Service) -> Iterator[httpx.Client]:
    """A client of the owner, which has no sandboxes after a test."""
    with owner.client() as http:
        yield http
        owner.tell("go")
        owner.clear(http)
    owner.until_waiting(0)


@pytest.fixture
def box(far: httpx.Client) -> str:
    """Creates a sandbox on the owner, and returns its path."""
    return made(far)


@pytest.fixture
def lie(fleet: Fleet) -> Iterator[Callable[..., Liar]]:
    """Starts the third host, until the end of the test."""
    liars: list[Liar] = []

    def start(serve: Callable[[ssl.SSLSocket], None], name: str = "") -> Liar:
        liars.append(fleet.lie(LIAR, serve, name))
        return liars[-1]

    yield start
    for liar in liars:
        liar.close()


def until_idle(*hosts: Service) -> None:
    """Waits until nothing is left of the requests."""
    for host in hosts:
        host.until_idle()


# --- ids ---


def test_ids_say_where_they_were_made(fleet: Fleet, near: httpx.Client, far: httpx.Client) -> None:
    for client, host in ((near, ENTRY), (far, OWNER)):
        path = made(client)
        assert fleet.place(path.rsplit("/", 1)[1]) == (3, host)
        child = client.post(f"{path}/fork", json={"n": 1}).json()["children"][0]
        assert fleet.place(child if isinstance(child, str) else child["id"]) == (3, host)


def test_without_a_fleet_there_is_none(start: Callable[..., Service], fleet: Fleet) -> None:
    server = start()
    fds = [str(one.readlink()) for one in Path(f"/proc/{server.pid}/fd").iterdir()]
    assert not any("inotify" in one for one in fds)
    with server.client() as http:
        places = [fleet.place(made(http).rsplit("/", 1)[1]) for _ in range(5)]
        assert places.count((3, ENTRY)) == 0
        assert http.get(f"/v1/sandboxes/{fleet.make_id(AWAY)}").json()["code"] == "not_found"
    # It has one listener.
    inodes = {one[8:-1] for one in fds if one.startswith("socket:")}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert len([row for row in rows if row[3] == "0A" and row[9] in inodes]) == 1


def test_regions_of_other_hosts_are_listed(fleet: Fleet, near: httpx.Client) -> None:
    for host, region in ((OWNER, "hel"), (LIAR, "hel"), (AWAY, "iad")):
        fleet.add(host, region=region)
    fleet.write()
    expected = [{"name": name, "endpoint": None, "here": False} for name in ("hel", "iad")]
    while near.get("/v1/regions").json() != expected:
        pause()


# --- plain requests ---


def test_any_host_serves_any_sandbox(near: httpx.Client, far: httpx.Client, box: str) -> None:
    assert near.get(box).json()["id"] == box.rsplit("/", 1)[1]
    assert near.head(box).status_code == 200
    assert near.patch(box, json={"metadata": {"a": 1}}).status_code == 200
    assert far.get(box).json()["metadata"] == {"a": 1}
    forked = near.post(f"{box}/fork", json={"n": 2})
    assert forked.status_code in (200, 201), forked.text
    assert [len(client.get("/v1/sandboxes").json()) for client in (near, far)] == [3, 3]
    assert near.delete(box).status_code == 204
    refused(near.get(box), 404, "not_found")


def test_answers_are_the_owners(near: httpx.Client, far: httpx.Client, box: str) -> None:
    """Status, fields and body of refusals, too."""
    for method, path, body in (
        ("GET", f"{box}/processes/prc_{'0' * 32}", ""),
        ("POST", f"{box}/exec", "{"),
        ("POST", f"{box}/exec", '{"code": 1}'),
        ("PATCH", box, '{"lifetime_seconds": "x"}'),
        ("GET", f"{box}/tcp/80", ""),
        ("PUT", f"{box}/files?path=relative", "data"),
    ):
        one, other = (client.request(method, path, content=body) for client in (near, far))
        assert (one.status_code, one.text) == (other.status_code, other.text), path
        fields = [{k: v for k, v in a.headers.items() if k not in ("date", "connection")} for a in (one, other)]
        assert fields[0] == fields[1], path


def test_paths_without_a_route_are_refused_here(near: httpx.Client, box: str) -> None:
    refused(near.get(f"{box}/nothing"), 404, "no_such_route")
    refused(near.put(box), 405, "method_not_allowed")


def test_spaces_are_found_by_their_ids(fleet: Fleet, near: httpx.Client, far: httpx.Client) -> None:
    path = made(far, persistent=True)
    frozen = near.post(f"{path}/freeze", json={})
    assert frozen.status_code in (200, 201), frozen.text
    space = str(frozen.json()["space_id"])
    assert fleet.place(space) == (3, OWNER)
    assert near.get(f"/v1/spaces/{space}").status_code == 200
    resumed = near.post(f"/v1/spaces/{space}/resume", json={})
    assert resumed.status_code in (200, 201), resumed.text
    assert fleet.place(str(resumed.json()["id"])) == (3, OWNER)


def test_checkpoints_are_found_by_their_ids(fleet: Fleet, near: httpx.Client, far: httpx.Client) -> None:
    path = made(far, tree={"live": 8})
    taken = near.post(f"{path}/checkpoints", json={"name": "first"})
    assert taken.status_code == 201, taken.text
    id = taken.json()["id"]
    one = f"/v1/checkpoints/{id}"
    assert fleet.place(id) == (3, OWNER)
    assert near.get(one).json()["id"] == id
    assert near.patch(one, json={"score": 0.5}).json()["score"] == 0.5
    (child,) = near.post(f"{one}/fork", json={"n": 1}).json()["children"]
    assert fleet.place(child["id"]) == (3, OWNER)
    assert near.post(f"{path}/rollback", json={"checkpoint": id}).json()["checkpoint"] == id
    refused(near.post(f"{path}/undo", json={}), 409, "no_undo")
    tree = f"/v1/trees/{path[-36:]}"
    assert near.patch(tree, json={"live": 9}).json()["tree"]["live"] == 9
    assert far.get(tree).json()["tree"]["live"] == 9
    assert near.delete(one).status_code == 204
    refused(far.get(one), 404, "not_found")


def test_checkpoint_in_a_body(fleet: Fleet, near: httpx.Client, far: httpx.Client, box: str) -> None:
    """A create goes to its host, a rollback needs it on the sandbox's."""
    id = far.post(f"{box}/checkpoints", json={}).json()["id"]
    mine = made(near)
    sentence = refused(near.post(f"{mine}/rollback", json={"checkpoint": id}), 404, "not_found")
    assert "on another host" in sentence and f"POST /v1/checkpoints/{id}/fork" in sentence
    for client, key in ((near, ""), (far, ""), (near, "one"), (far, "one"), (near, "two"), (far, "three")):
        path = made(client, checkpoint=id) if not key else ""
        again = client.post("/v1/sandboxes", json={"checkpoint": id}, headers={"idempotency-key": key or "zero"})
        assert again.status_code == 201, again.text
        for one in (path[-36:] or again.json()["id"], again.json()["id"]):
            assert fleet.place(one) == (3, OWNER)
    assert len(far.get("/v1/sandboxes").json()) == 2 + 2 + 4
    gone = fleet.make_id(AWAY, "chk_")
    refused(near.post("/v1/sandboxes", json={"checkpoint": gone}), 503, "host_unreachable")
    refused(near.post("/v1/sandboxes", json={"checkpoint": "chk_1"}), 400, "bad_request")
    assert near.post(f"{box}/rollback", json={"checkpoint": id}).status_code == 200
    far.delete(f"/v1/checkpoints/{id}")


def test_http2_and_http10_clients(entry: Service, far: httpx.Client, box: str) -> None:
    with entry.client(http2=True) as http:
        answer = http.get(box)
        assert (answer.http_version, answer.json()["id"]) == ("HTTP/2", box.rsplit("/", 1)[1])
    raw = entry.raw(f"GET {box} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    assert raw.startswith(b"HTTP/1.1 200") and box[14:].encode() in raw
    target = f"http://localhost:{entry.port}{box}"
    raw = entry.raw(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert raw.startswith(b"HTTP/1.1 200")


def test_idempotency_keys_are_the_owners(near: httpx.Client, far: httpx.Client, box: str) -> None:
    key = {"idempotency-key": "once"}
    forked = [client.post(f"{box}/fork", json={"n": 1}, headers=key) for client in (near, far, near)]
    assert len({answer.text for answer in forked}) == 1
    assert len(far.get("/v1/sandboxes").json()) == 2


# --- hosts that are not there ---


def test_host_that_is_away(fleet: Fleet, near: httpx.Client) -> None:
    one = fleet.make_id(AWAY)
    answer = near.get(f"/v1/sandboxes/{one}")
    sentence = refused(answer, 503, "host_unreachable")
    assert sentence == f"host h20, which has {one}, cannot be reached (it does not accept connections): try again"
    assert answer.headers["retry-after"] == "1"


def test_host_that_is_lost(fleet: Fleet, near: httpx.Client) -> None:
    path = f"/v1/sandboxes/{fleet.make_id(AWAY)}"
    fleet.add(AWAY, gone=int(time.time()) - 700)
    fleet.write()
    answer = near.get(path)
    while answer.status_code == 503:  # the table is read soon
        pause()
        answer = near.get(path)
    assert "h20" in (sentence := refused(answer, 404, "host_lost")) and "gone for 11 minutes" in sentence
    fleet.add(AWAY, gone=None)
    fleet.write()
    while near.get(path).status_code == 404:
        pause()
    assert "removed from the fleet" in refused(near.get(f"/v1/sandboxes/{fleet.make_id(999)}"), 404, "host_lost")


def test_host_that_hangs(fleet: Fleet, entry: Service, near: httpx.Client) -> None:
    """It accepts connections and says nothing, not even TLS."""
    with socket.create_server(fleet.address(AWAY)):
        sentence = refused(near.get(f"/v1/sandboxes/{fleet.make_id(AWAY)}"), 503, "host_unreachable")
    assert "does not finish the TLS handshake" in sentence
    until_idle(entry)


def test_ids_of_other_cells_and_keys_are_not_found(fleet: Fleet, near: httpx.Client) -> None:
    refused(near.get(f"/v1/sandboxes/{fleet.make_id(AWAY, cell=4)}"), 404, "not_found")
    foreign = Fleet.__new__(Fleet)
    foreign.key = bytes(32)
    codes = [near.get(f"/v1/sandboxes/{foreign.make_id(AWAY)}").json()["code"] for _ in range(20)]
    assert codes.count("not_found") >= 19


def test_request_of_a_host_is_not_passed_on_again(fleet: Fleet, near: httpx.Client) -> None:
    """The owner gets an id that its table says is the entry's: hosts that disagree must not loop."""
    ip, port = fleet.address(ENTRY)
    cert, key = fleet.authority.make(f"h{OWNER}", "loop")
    tls = ssl.create_default_context(cafile=str(fleet.authority.cert))
    tls.load_cert_chain(cert, key)
    tls.check_hostname = False
    with httpx.Client(base_url=f"https://{ip}:{port}", verify=tls, trust_env=False) as peer:
        answer = peer.get(f"/v1/sandboxes/{fleet.make_id(AWAY)}", headers={"host": "localhost"})
        refused(answer, 404, "not_found")


# --- keys ---


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two hosts that know the keys of two tenants, and each another one, in this order."""
    fleet = Fleet(tmp_path_factory.mktemp("keyed"))
    owner = fleet.start(OWNER, "pro", "free", others=(ENTRY,))
    owner.tell("go")
    owner.stop()
    shared = list(owner.keys)
    shutil.copytree(fleet.home / f"h{OWNER}/service/state", fleet.home / f"h{ENTRY}/service/state")
    for host in (OWNER, ENTRY):
        fleet.start(host, "pro")
    fleet.services[ENTRY].keys[:0] = shared
    yield fleet
    fleet.stop()


def test_both_hosts_check_the_key(keyed: Fleet) -> None:
    def bearer(key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    entry, owner = keyed.services[ENTRY], keyed.services[OWNER]
    first, second, own = owner.keys
    with entry.client() as near, owner.client() as far:
        path = "/v1/sandboxes/" + str(far.post("/v1/sandboxes", json={}, headers=bearer(first)).json()["id"])
        assert near.get(path, headers=bearer(first)).status_code == 200
        refused(near.get(path, headers=bearer(second)), 404, "not_found")
        refused(near.get(path), 401, "key_missing")
        refused(near.get(path, headers=bearer(own)), 401, "key_unknown")
        # The entry knows this one; the refusal is the owner's.
        stranger = entry.keys[2]
        assert near.get("/v1/sandboxes", headers=bearer(stranger)).status_code == 200
        answer = near.get(path, headers=bearer(stranger))
        refused(answer, 401, "key_unknown")
        assert answer.headers["www-authenticate"] == "Bearer"
        # So it does for lists: a host that does not know the key is missing.
        for key, n, missing in ((first, 1, None), (second, 0, None), (stranger, 0, f"h{OWNER}")):
            answer = near.get("/v1/sandboxes", headers=bearer(key))
            assert (len(answer.json()), answer.headers.get("ramet-missing-hosts")) == (n, missing)
        far.delete(path, headers=bearer(first))


# --- who may connect ---


def peer_answers(fleet: Fleet, authority: Authority, name: str) -> bool:
    """Returns whether the entry host serves whoever has a certificate for `name`."""
    ip, port = fleet.address(ENTRY)
    tls = ssl.create_default_context(cafile=str(fleet.authority.cert))
    tls.check_hostname = False
    if name:
        tls.load_cert_chain(*authority.make(name, "caller"))
    try:
        with httpx.Client(base_url=f"https://{ip}:{port}", verify=tls, trust_env=False) as peer:
            return peer.get("/livez", headers={"host": "localhost"}).status_code == 200
    except httpx.TransportError:
        return False


def test_only_hosts_of_the_table_may_connect(fleet: Fleet, tmp_path: Path) -> None:
    assert peer_answers(fleet, fleet.authority, f"h{OWNER}")
    assert not peer_answers(fleet, fleet.authority, "")
    assert not peer_answers(fleet, fleet.authority, "h21")
    assert not peer_answers(fleet, Authority(tmp_path / "other"), f"h{OWNER}")
    log = fleet.services[ENTRY].log.read_text()
    assert "refusing a host's certificate for" in log


def test_host_must_have_its_own_certificate(fleet: Fleet, near: httpx.Client, lie: Callable[..., Liar]) -> None:
    """Another host of the fleet has taken its address. The log says so, but not for each request."""
    asked: list[bytes] = []
    log = fleet.services[ENTRY].log
    lie(lambda s: asked.append(read_head(s)), name=f"h{OWNER}")
    for _ in range(5):
        sentence = refused(near.get(f"/v1/sandboxes/{fleet.make_id(LIAR)}"), 503, "host_unreachable")
        assert "certificate" in sentence and not asked
    lines = [line for line in log.read_text().splitlines() if f"no connection to host h{LIAR} at " in line]
    lines = [line for line in lines if f'refuses its certificate, for "h{OWNER}": another host is at that' in line]
    assert 1 <= len(lines) < 5  # one a minute
    assert "correct the address in the table, or fleet_listen or fleet_cert there" in lines[0]


def test_certificate_of_another_authority_is_named(
    fleet: Fleet, near: httpx.Client, lie: Callable[..., Liar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path / "other")
    monkeypatch.setattr(fleet, "authority", other)
    lie(lambda s: None)
    assert "certificate" in refused(near.get(f"/v1/sandboxes/{fleet.make_id(LIAR)}"), 503, "host_unreachable")
    log = fleet.services[ENTRY].log.read_text()
    assert f'refuses its certificate, for "h{LIAR}": ' in log
    assert "fleet_cert there must be valid now, and of the authority in fleet_ca" in log


def test_program_that_does_not_speak_tls_is_named(fleet: Fleet, near: httpx.Client) -> None:
    fleet.add(LIAR)
    fleet.write()
    path = f"/v1/sandboxes/{fleet.make_id(LIAR)}"
    with socket.create_server(fleet.address(LIAR)) as listener:

        def serve() -> None:
            with listener.accept()[0] as s:
                s.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 100)
                s.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        refused(near.get(path), 503, "host_unreachable")
        thread.join()
    log = fleet.services[ENTRY].log.read_text()
    assert "another program may listen at that address" in log


def test_certificate_of_the_table_is_the_only_one(
    fleet: Fleet, near: httpx.Client, lie: Callable[..., Liar]
) -> None:
    path = f"/v1/sandboxes/{fleet.make_id(LIAR)}"
    fleet.add(LIAR, cert_sha256="00" * 32)
    lie(lambda s: None)
    answer = near.get(path)
    while answer.status_code != 503:  # the table is read soon
        pause()
        answer = near.get(path)
    assert "certificate" in refused(answer, 503, "host_unreachable")
    # This is another reason than before, so it is named at once.
    assert f'for "h{LIAR}": the table has another certificate' in fleet.services[ENTRY].log.read_text()
    fleet.add(LIAR, cert_sha256=None)
    fleet.write()
    while near.get(path).status_code == 503:
        pause()


def test_host_whose_own_certificate_is_not_in_the_table_says_so(fleet: Fleet) -> None:
    fleet.add(ENTRY, cert_sha256="00" * 32)
    fleet.write()
    fleet.services[ENTRY].restart()
    fleet.add(ENTRY, cert_sha256=None)
    fleet.write()
    assert "another certificate for this host than fleet_cert" in fleet.services[ENTRY].log.read_text()
