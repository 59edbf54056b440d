# SPDX-License-Identifier: Apache-2.0
"""Keys and tiers with real guests: a service of its own, since the others have none."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Iterator

import pytest

from conftest import on_host

STATE, RUN, PORT = "/var/lib/ramet/keys-test", "/run/ramet-keys", 7998
PLACE = f"--config=/dev/null --run_dir={RUN} --state_dir={STATE}"
RAMETD = (
    f"/usr/lib/ramet/rametd {PLACE} --vm_uid_base=700000 --cgroup=/keys --network= --sizes="
    " --templates_dir= --pool_blank_vms=1 --pool_warm=1 --pool_others=0 --boot_timeout_s=900"
    f" --listen_port={PORT} '--tier_free=concurrent=3 lifetime_s=500 idle_s=400 ram_mib=512'"
)
RAMET = f"ramet {PLACE}"


class Key:
    """A new key, and what is asked with it."""

    def __init__(self, arguments: str) -> None:
        said = on_host(f"{RAMET} {arguments}")
        self.text = said.split()[0]
        found = re.search(r"key (key_[0-9a-f]{16}), tenant (\S+),", said)
        assert self.text.startswith("rmt_") and found, said
        self.id, self.tenant = found[1], found[2]

    def curl(self, method: str, path: str, body: Any = None) -> str:
        """The command that asks."""
        data = "" if body is None else "-d " + shlex.quote(json.dumps(body))
        return (
            f"curl -sS -N -m 100 -X {method} -H 'authorization: Bearer {self.text}' {data}"
            f" http://127.0.0.1:{PORT}{path}"
        )

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Status and body."""
        said = on_host(self.curl(method, path, body) + " -w '\\n%{http_code}'")
        text, status = said.rsplit("\n", 1)
        return int(status), text

    def create(self, **body: Any) -> str:
        """Path of a new sandbox."""
        status, text = self.ask("POST", "/v1/sandboxes", body)
        assert status == 201, text
        return "/v1/sandboxes/" + str(json.loads(text)["id"])

    def refused(self) -> str:
        """The code with which the key is not taken."""
        status, text = self.ask("GET", "/v1/sandboxes")
        assert status == 401, text
        return str(json.loads(text)["code"])


def wait_healthy() -> None:
    asks = (
        f"for i in $(seq 400); do [ \"$(curl -s http://127.0.0.1:{PORT}/v1/healthz)\" != ok ] ||"
        f" {{ echo up; break; }}; sleep 0.2; done"
    )
    # Minutes, where the template is booted under emulation.
    assert any("up" in on_host(asks) for _ in range(10)), on_host(f"tail -n 20 {STATE}.log")


@pytest.fixture(scope="module")
def first() -> Iterator[Key]:
    """The key that was made before the service was started; it runs meanwhile."""
    on_host(f"rm -rf {STATE} {RUN}; install -d -m 700 -o ramet -g ramet {STATE}")
    # The template's image is the same: it is not booted again.
    on_host(f"cp -a --sparse=always /var/lib/ramet/templates {STATE}/ 2>/dev/null || true")
    key = Key("key create --tier pro --name first")
    on_host(f"setsid {RAMETD} </dev/null >{STATE}.log 2>&1 & echo $! >{STATE}.pid")
    try:
        wait_healthy()
        yield key
    finally:
        ended = on_host(
            f"pid=$(cat {STATE}.pid); kill -TERM $pid; for i in $(seq 600); do"
            " [ -e /proc/$pid ] || { echo ended; break; }; sleep 0.1; done;"
            f" kill -9 $pid 2>/dev/null; rm -rf {STATE} {STATE}.pid {STATE}.log {RUN}; true"
        )
        assert ended.strip() == "ended", "it did not stop within 60 s"


def test_the_first_key_is_made_without_a_service(first: Key) -> None:
    # What was written as root would be out of the service's reach.
    assert set(on_host(f"stat -c %U {STATE}/catalogue.db*").split()) == {"ramet"}
    assert on_host(f"stat -c '%U %a' {RUN}/admin.sock").split() == ["root", "600"]
    assert on_host(f"grep -q -a {first.text[:20]} {STATE}/catalogue.db*; echo $?").strip() == "1"
    assert json.loads(first.ask("GET", "/v1/sandboxes")[1]) == []


def test_code_runs_with_a_key_and_not_without(first: Key) -> None:
    sandbox = first.create()
    status, events = first.ask("POST", f"{sandbox}/exec", {"code": "print(6 * 7)"})
    assert status == 200 and '"data":"42"' in events
    status = int(
        on_host(f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{PORT}/v1/sandboxes")
    )
    assert status == 401
    assert first.ask("DELETE", sandbox)[0] == 204


def test_a_tier_s_limits(first: Key) -> None:
    free = Key("key create --tier free --name limited")
    sandbox = free.create(ram_mib=4096, timeout_seconds=100000, persistent=True)
    info = json.loads(free.ask("GET", sandbox)[1])
    assert info["ram_mib"] == 512 and info["persistent"] is False
    status, text = free.ask("POST", f"{sandbox}/fork", {"n": 3})
    assert (status, json.loads(text)["code"]) == (429, "cap_reached")
    status, text = free.ask("POST", f"{sandbox}/fork", {"n": 2})
    assert status == 200, text
    status, text = free.ask("POST", "/v1/sandboxes", {})
    assert (status, json.loads(text)["code"]) == (429, "cap_reached")
    assert len(json.loads(free.ask("GET", "/v1/sandboxes")[1])) == 3
    assert json.loads(first.ask("GET", "/v1/sandboxes")[1]) == []
    assert first.ask("DELETE", sandbox)[0] == 404
    for one in json.loads(free.ask("GET", "/v1/sandboxes")[1]):
        assert free.ask("DELETE", "/v1/sandboxes/" + one["id"])[0] == 204


def test_a_revoked_key_s_streams_end_at_once(first: Key) -> None:
    key = Key("key create --tier pro --name short-lived")
    sandbox = key.create()
    code = {"code": "import time\nprint('on', flush=True)\ntime.sleep(1000)"}
    said = on_host(
        f"{key.curl('POST', f'{sandbox}/exec', code)} >{STATE}.out 2>/dev/null & pid=$!;"
        f" until grep -q '\"on\"' {STATE}.out; do sleep 0.1; done;"
        f" {RAMET} key revoke {key.id} >/dev/null; wait $pid; echo status $?; rm {STATE}.out"
    )
    status = int(said.split()[-1])
    assert status not in (0, 28), "the stream went on until it was whole, or curl's time was over"
    assert key.refused() == "key_revoked"
    assert first.ask("GET", "/v1/sandboxes")[0] == 200


def test_a_rotated_key_has_the_sandboxes_of_the_old_one(first: Key) -> None:
    old = Key("key create --tier pro --name to-be-rotated")
    sandbox = old.create()
    old.ask("POST", f"{sandbox}/exec", {"code": "x = 5"})
    new = Key(f"key rotate {old.id} --grace 0")
    assert new.tenant == old.tenant and old.refused() == "key_revoked"
    assert '"data":"5"' in new.ask("POST", f"{sandbox}/exec", {"code": "print(x)"})[1]
    assert new.ask("DELETE", sandbox)[0] == 204


def test_keys_hold_after_a_kill(first: Key) -> None:
    gone = Key("key create --tier pro --name revoked-before")
    on_host(f"{RAMET} key revoke {gone.id}")
    sandbox = first.create()
    first.ask("POST", f"{sandbox}/exec", {"code": "x = 7"})
    on_host(
        f"for p in $(cat {STATE}.pid) $(pgrep -P $(cat {STATE}.pid)); do"
        " pgrep -P $p -f role=service; done | xargs kill -9"
    )
    listed = on_host(f"{RAMET} key list")  # it waits for the next life
    assert gone.id in listed and first.id in listed
    wait_healthy()
    assert gone.refused() == "key_revoked"
    assert '"data":"7"' in first.ask("POST", f"{sandbox}/exec", {"code": "print(x)"})[1]
    assert first.ask("DELETE", sandbox)[0] == 204


def test_the_audit_log_has_each_key(first: Key) -> None:
    old = Key("key create --tier free --name 'of a \"tier\"'")
    new = Key(f"key rotate {old.id} --grace 60")
    on_host(f"{RAMET} key revoke {new.id}; {RAMET} key revoke {new.id}")
    told: list[dict[str, Any]] = []
    while not told or told[-1].get("key") != new.id or told[-1]["event"] != "key.revoked":
        text = on_host(f"cat {STATE}/audit/audit.jsonl")
        told = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    assert (told[0]["n"], told[0]["event"], told[0]["key"]) == (1, "key.created", first.id)
    made, rotated, revoked = told[-3:]
    assert (made["event"], made["key"], made["tenant"]) == ("key.created", old.id, old.tenant)
    assert made["text"] == 'tier free, name of a "tier"'
    assert (rotated["event"], rotated["key"]) == ("key.rotated", new.id)
    assert rotated["previous"] == old.id and "good for 60 s more" in rotated["text"]
    assert revoked["tenant"] == old.tenant
    assert new.text not in text and first.text not in text


def test_operators_are_root(first: Key) -> None:
    said = on_host(
        f"setpriv --reuid=65534 --regid=65534 --clear-groups {RAMET} key list 2>&1 || echo status $?"
    )
    assert "status 1" in said and "ermission denied" in said
