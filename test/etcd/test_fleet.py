# SPDX-License-Identifier: Apache-2.0
"""ramet-fleet with a real etcd: membership, and what happens when parts of it fail."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

import pytest
from cell import Etcd, rametctl, text_of, until
from conftest import PROGRAM, Fleet, Host


def end_lease(fleet: Fleet, key: str) -> None:
    card = fleet.etcd.get(key)
    assert card
    fleet.etcd.post("/v3/lease/revoke", {"ID": card["lease"]})


def test_hosts_see_each_other_and_who_is_gone(fleet: Fleet) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    b.sees(17)
    assert a.table()[18]["address"] == "10.0.0.18:7443"
    assert len(a.table()[18]["cert_sha256"]) == 64
    assert "h18" in rametctl("fleet", "status", a.tables)
    b.kill()
    end_lease(fleet, b.key)
    a.sees(gone=(18,))
    assert "gone for" in rametctl("fleet", "status", a.tables)
    b.start()
    a.sees(18)
    b.sees(17)


def test_killed_program_takes_its_place_again(fleet: Fleet) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    before = fleet.etcd.get(b.key)
    assert before
    b.kill()
    b.start()
    again = until("another card", lambda: (c := fleet.etcd.get(b.key)) and c["lease"] != before["lease"])
    assert again
    b.sees(17)
    a.sees(18)
    # The lease of the killed process ends, the card stays.
    fleet.etcd.post("/v3/lease/revoke", {"ID": before["lease"]})
    assert fleet.etcd.get(b.key)
    a.sees(18)


def test_host_that_lost_its_lease_joins_again(fleet: Fleet) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    end_lease(fleet, b.key)
    b.says("joins again")
    a.sees(18)
    b.sees(17)


def test_second_machine_with_a_number_is_refused(fleet: Fleet) -> None:
    token = fleet.token(17)
    a = fleet.host(17, token).start()
    a.sees()
    b = fleet.host(17, token).start()
    b.says("host number 17 is taken by h17 at 10.0.0.17:7443", "this machine, h17 at 10.0.0.17:7443")
    assert not b.table()
    a.kill()
    end_lease(fleet, a.key)
    b.sees()


def test_host_of_another_fleet_is_refused(fleet: Fleet) -> None:
    a = fleet.host(17).start()
    a.sees()
    fleet.set(fleet="feedfeedfeedfeed")
    b = fleet.host(18).start()
    b.says(f"cell {fleet.cell} in etcd at", "and this host to feedfeedfeedfeed: it does not join")
    assert not b.table() and not fleet.etcd.get(b.key)
    fleet.put_card(19)
    a.says("host 19 (h19) is left out of the table: it belongs to the fleet feedfeedfeedfeed")
    a.sees()


def test_cards_that_cannot_be_used_are_left_out(fleet: Fleet) -> None:
    a = fleet.host(17).start()
    a.sees()
    fleet.put_card(18, format=2)
    a.says("host 18 (h18) is left out of the table: it has the format 2")
    fleet.put_card(19, name="h17")
    a.says("host 19 (h17) is left out of the table: host 17 has the same name")
    fleet.put_card(20, address="nowhere")
    a.says("host 20 (h20) is left out of the table:", 'address "nowhere"')
    fleet.put_card(21, host=22)
    a.says("host 21 (h21) is left out of the table: its card is that of host 22")
    fleet.etcd.put(f"/ramet/{fleet.cell}/hosts/23", "garbage")
    a.says("host 23 (its card is damaged) is left out of the table")
    fleet.etcd.put(f"/ramet/{fleet.cell}/hosts/x", "garbage")
    a.says("is not that of a host: it is ignored")
    fleet.put_card(24, seen=1000)
    a.says("the clock of host 24 (h24) differs from this host's by -")
    fleet.put_card(25, seen=int(time.time()) + 60)
    a.says("the clock of host 25 (h25) differs from this host's by ")
    fleet.put_card(26)
    fleet.put_card(27, seen=int(time.time()) - 10)  # it may have come late
    a.sees(24, 25, 26, 27)
    assert "clock of host 26" not in a.log() and "clock of host 27" not in a.log()


def test_leader_that_is_killed_is_replaced(fleet: Fleet, etcd: Etcd) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    b.sees(17)
    etcd.leader().kill()
    c = fleet.host(19).start()
    for host, others in ((a, (18, 19)), (b, (17, 19)), (c, (17, 18))):
        host.sees(*others)


def test_leader_that_stands_still_is_left(fleet: Fleet, etcd: Etcd) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    b.sees(17)
    etcd.leader().signal(signal.SIGSTOP)
    c = fleet.host(19).start()
    for host, others in ((a, (18, 19)), (b, (17, 19)), (c, (17, 18))):
        host.sees(*others)


def test_table_stays_without_a_quorum(fleet: Fleet, etcd: Etcd) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    b.sees(17)
    for m in etcd.members[:2]:
        m.kill()
    a.says("the last table of hosts stays in use")
    b.kill()
    b.start()  # without a quorum it has what the earlier process wrote
    b.says("the last table of hosts stays in use")
    assert set(a.table()) == set(b.table()) == {17, 18}
    c = fleet.host(19).start()
    c.says("there is no table of hosts yet")
    etcd.start()
    for host, others in ((a, (18, 19)), (b, (17, 19)), (c, (17, 18))):
        host.sees(*others)
    a.says("works again")


def test_changes_that_etcd_has_forgotten_are_found(fleet: Fleet, etcd: Etcd) -> None:
    a = fleet.host(17).start()
    fleet.put_card(18)
    a.sees(18)
    assert a.process
    a.process.send_signal(signal.SIGSTOP)
    key = text_of(f"/ramet/{fleet.cell}/hosts/18")
    etcd.post("/v3/kv/deleterange", {"key": key})
    fleet.put_card(19)
    revision = etcd.post("/v3/kv/range", {"key": key})["header"]["revision"]
    etcd.post("/v3/kv/compaction", {"revision": revision, "physical": True})
    etcd.stop()
    etcd.start()
    a.process.send_signal(signal.SIGCONT)
    a.sees(19, gone=(18,))


def test_more_hosts_than_one_answer_has(fleet: Fleet) -> None:
    numbers = range(100, 100 + 501)
    ops = [
        {
            "request_put": {
                "key": text_of(f"/ramet/{fleet.cell}/hosts/{n}"),
                "value": text_of(json.dumps({**fleet.card(n), "address": "10.0.0.1:7443"})),
            }
        }
        for n in numbers
    ]
    for i in range(0, len(ops), 100):
        fleet.etcd.post("/v3/kv/txn", {"success": ops[i : i + 100]})
    a = fleet.host(17).start()
    a.sees(*numbers)


def test_machine_joins_again_only_as_the_same_host(fleet: Fleet) -> None:
    a = fleet.host(17)
    before = {path.name: path.read_text() for path in a.settings.iterdir()}
    (fleet.folder / "again").write_text(fleet.token(17))
    rametctl("fleet", "join", fleet.folder / "again", a.settings)
    after = {path.name: path.read_text() for path in a.settings.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {
        "cert.pem",
        "etcd-cert.pem",
        "etcd-key.pem",
        "fleet.json",
        "key.pem",
    }
    instances = [json.loads(files["fleet.json"])["instance"] for files in (before, after)]
    assert instances[0] == instances[1]
    (fleet.folder / "other").write_text(fleet.token(18))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rametctl("fleet", "join", fleet.folder / "other", a.settings)
    assert "this machine is host 17 (h17) of the fleet" in refused.value.stderr
    assert "the token is for host 18 (h18)" in refused.value.stderr
    assert after == {path.name: path.read_text() for path in a.settings.iterdir()}
    readable = {p.name for p in (*a.settings.iterdir(), *fleet.ca.iterdir()) if p.stat().st_mode & 0o4}
    assert not {name for name in readable if "key" in name}


def test_certificate_of_another_authority_is_refused(fleet: Fleet) -> None:
    a = fleet.host(17)
    other = fleet.folder / "other"
    rametctl("fleet", "init", other, fleet.cell, *(m.url for m in fleet.etcd.members))
    token = json.loads(rametctl("fleet", "ca", other, "host", 17, "h17", "10.0.0.17:7443"))
    for part in ("cert", "key"):
        (a.settings / f"etcd-{part}.pem").write_text(token[f"etcd_{part}"])
    a.start().says("etcd at https://127.0.0.1:", "there is no table of hosts yet")
    assert not a.table()


def test_check_reports_members(fleet: Fleet, etcd: Etcd) -> None:
    a = fleet.host(17)

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run([PROGRAM, "--check", a.settings], capture_output=True, text=True)

    done = check()
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{m.url}: etcd 3." in done.stdout for m in etcd.members)
    assert "etcd has a quorum" in done.stdout
    etcd.members[0].kill()
    etcd.leader()
    done = check()
    assert done.returncode == 1
    assert f"etcd at {etcd.members[0].url}: " in done.stdout
    assert "1 of the 3 members of etcd: no answer" in done.stderr


def order(host: Host, *options: str) -> str:
    done = subprocess.run(
        [PROGRAM, *options, host.settings, host.tables], capture_output=True, text=True
    )
    assert done.returncode in (0, 1)
    return str(done.stdout + done.stderr)


def test_orders_reach_all_hosts(fleet: Fleet) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.sees(18)
    b.sees(17)

    def follow(number: int, state: str, timed: bool = False) -> bool:
        tables = [host.table() for host in (a, b)]
        return all(t[number]["state"] == state and bool(t[number]["deadline"]) == timed for t in tables)

    said = order(a, "--drain=h18", "--deadline=2h")
    assert said.startswith("host 18 (h18) gets no new sandboxes; what is left ends at 20")
    until("drain", lambda: follow(18, "draining", timed=True))
    assert "draining until 20" in rametctl("host", "list", b.tables)
    left = a.table()[18]["deadline"] - time.time()
    assert 7000 < left <= 7200
    assert order(b, "--drain", "17") == "host 17 (h17) gets no new sandboxes\n"  # itself, and by its number
    until("drain", lambda: follow(17, "draining"))
    # It outlives the program and the lease.
    b.kill()
    end_lease(fleet, b.key)
    a.sees(gone=(18,))
    assert ", draining" in rametctl("host", "list", a.tables)
    b.start()
    a.sees(18)
    assert follow(18, "draining", timed=True)
    for host in (a, b):
        assert "gets new" in order(host, f"--undrain={host.name}")
        until("end of the drain", lambda: follow(host.number, "ready"))
    assert 'has no host "h19"' in order(a, "--drain=h19")
    for wrong in (
        ("--dance=h17",),
        ("--deadline=1h",),
        ("--forget=h17", "--deadline=1h"),
        ("--drain=h17", "--undrain=h17"),
    ):
        done = subprocess.run([PROGRAM, *wrong, a.settings, a.tables], capture_output=True, text=True)
        assert done.returncode == 2 and "usage:" in done.stderr


def test_host_that_is_gone_is_forgotten(fleet: Fleet) -> None:
    a, b, c = (fleet.host(n).start() for n in (17, 18, 19))
    a.sees(18, 19)
    c.sees(17, 18)
    assert "host 18 (h18) is alive" in order(a, "--forget=h18")
    b.kill()
    c.kill()
    end_lease(fleet, b.key)
    a.sees(19, gone=(18,))
    assert "host 18 (h18) is forgotten" in order(a, "--forget=h18")
    a.sees(19)
    c.start()  # whose table had it
    c.sees(17)
    b.start()
    a.sees(18, 19)
    b.kill()
    end_lease(fleet, b.key)
    a.sees(19, gone=(18,))  # it is a host like others again


def key(name: str, **changes: Any) -> dict[str, Any]:
    number = int.from_bytes(name.encode(), "big")
    return {
        "format": 1,
        "id": f"key_{number:016x}",
        "tenant": "tnt_0123456789abcdef",
        "hash": f"{number:064x}",
        "name": name,
        "tier": "pro",
        "created": 1000,
        "tier_at": 1000,
        "ends": 0,
        "revoked": False,
        **changes,
    }


def test_keys_and_revocations_are_everywhere(fleet: Fleet) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.offer(key("one"), key("two"))
    for host in (a, b):
        until("keys", lambda: set(host.keys()) == {"one", "two"})
    b.offer(key("one", revoked=True), key("two", tier="free", tier_at=2000))
    until("revocation", lambda: a.keys()["one"]["revoked"])
    until("tier", lambda: a.keys()["two"]["tier"] == "free")
    # The older versions, which a service still has, change nothing; a new key is the last change.
    a.offer(key("one"), key("two"), key("three"))
    until("new key", lambda: "three" in b.keys())
    until("the same on both", lambda: a.keys() == b.keys())
    assert b.keys()["one"]["revoked"] and b.keys()["two"]["tier"] == "free"
    a.offer({"format": 1, "name": "damaged"}, key("four"))
    a.says("a key in keys.json is left out: id is missing")
    until("good key", lambda: "four" in b.keys())


def test_keys_that_were_made_apart_meet(fleet: Fleet, etcd: Etcd) -> None:
    a, b = fleet.host(17).start(), fleet.host(18).start()
    a.offer(key("one"))
    for host in (a, b):
        until("key", lambda: "one" in host.keys())
    for m in etcd.members[:2]:
        m.kill()
    a.kill()
    b.kill()
    a.offer(key("one", revoked=True))
    b.offer(key("one"), *(key(f"b{i}") for i in range(100)))
    a.start()
    b.start()
    assert "one" in a.keys() and "one" in b.keys()  # as the earlier processes wrote them
    etcd.start()
    names = {"one", *(f"b{i}" for i in range(100))}
    for host in (a, b):
        until("all keys", lambda: set(host.keys()) == names and host.keys()["one"]["revoked"])
