# SPDX-License-Identifier: Apache-2.0
"""Keys and tiers with real guests, in a second service: the one of the other tests has no keys."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Iterator

import pytest

from conftest import on_host

STATE, RUN, PORT = "/var/lib/ramet/keys-test", "/run/ramet-keys", 7998
PATHS = f"--config=/dev/null --run_dir={RUN} --state_dir={STATE}"
RAMETD = (
    f"/usr/lib/ramet/rametd {PATHS} --vm_uid_base=700000 --cgroup=/keys --network= --sizes="
    " --templates_dir= --pool_blank_vms=1 --pool_warm=1 --pool_others=0 --boot_timeout_s=900"
    f" --listen_port={PORT} '--tier_free=concurrent=3 lifetime_s=500 idle_s=400 ram_mib=1024'"
)
RAMET = f"rametctl {PATHS}"


class Key:
    """A new key, and requests that use it."""

    def __init__(self, arguments: str) -> None:
        said = on_host(f"{RAMET} {arguments}")
        self.text = said.split()[0]
        found = re.search(r"key (key_[0-9a-f]{16}), tenant (\S+),", said)
        assert self.text.startswith("rmt_") and found, said
        self.id, self.tenant = found[1], found[2]

    def curl(self, method: str, path: str, body: Any = None) -> str:
        """Returns a shell command that sends the request."""
        data = "" if body is None else "-d " + shlex.quote(json.dumps(body))
        return (
            f"curl -sS -N -m 100 -X {method} -H 'authorization: Bearer {self.text}' {data}"
            f" http://127.0.0.1:{PORT}{path}"
        )

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Sends a request; returns the status and the body of the answer."""
        said = on_host(self.curl(method, path, body) + " -w '\\n%{http_code}'")
        text, status = said.rsplit("\n", 1)
        return int(status), text

    def create(self, **body: Any) -> str:
        """Creates a sandbox; returns its path."""
        status, text = self.ask("POST", "/v1/sandboxes", body)
        assert status == 201, text
        return "/v1/sandboxes/" + str(json.loads(text)["id"])

    def refused(self) -> str:
        """Sends a request that must be refused; returns the code of the error."""
        status, text = self.ask("GET", "/v1/sandboxes")
        assert status == 401, text
        return str(json.loads(text)["code"])


def wait_healthy() -> None:
    asks = (
        f"for i in $(seq 400); do [ \"$(curl -s http://127.0.0.1:{PORT}/v1/healthz)\" != ok ] ||"
        f" {{ echo up; break; }}; sleep 0.2; done"
    )
    # Under emulation, booting the template takes minutes.
    assert any("up" in on_host(asks) for _ in range(10)), on_host(f"tail -n 20 {STATE}.log")


@pytest.fixture(scope="module")
def first() -> Iterator[Key]:
    """A key that was created before the service was started. The service runs until the last test."""
    on_host(f"rm -rf {STATE} {RUN}; install -d -m 700 -o ramet -g ramet {STATE}")
    # The images of the default template can be used as they are, which saves the boot.
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
        assert ended.strip() == "ended", "the service did not stop within 60 s"


def test_first_key_is_created_without_a_service(first: Key) -> None:
    # The service could not open a catalogue that belongs to root.
    assert set(on_host(f"stat -c %U {STATE}/catalogue.db*").split()) == {"ramet"}
    assert on_host(f"stat -c '%U %a' {RUN}/admin.sock").split() == ["root", "600"]
    assert on_host(f"grep -q -a {first.text[:20]} {STATE}/catalogue.db*; echo $?").strip() == "1"
    assert json.loads(first.ask("GET", "/v1/sandboxes")[1]) == []


@pytest.mark.smoke
def test_code_runs_only_with_a_key(first: Key) -> None:
    sandbox = first.create()
    status, events = first.ask("POST", f"{sandbox}/exec", {"code": "print(6 * 7)"})
    assert status == 200 and '"data":"42"' in events
    status = int(
        on_host(f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{PORT}/v1/sandboxes")
    )
    assert status == 401
    assert first.ask("DELETE", sandbox)[0] == 204


def test_tier_limits_apply(first: Key) -> None:
    free = Key("key create --tier free --name limited")
    sandbox = free.create(ram_mib=4096, timeout_seconds=100000, persistent=True)
    info = json.loads(free.ask("GET", sandbox)[1])
    assert info["ram_mib"] == 1024 and info["persistent"] is False
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


def test_revoking_a_key_ends_its_streams(first: Key) -> None:
    key = Key("key create --tier pro --name short-lived")
    sandbox = key.create()
    code = {"code": "import time\nprint('on', flush=True)\ntime.sleep(1000)"}
    said = on_host(
        f"{key.curl('POST', f'{sandbox}/exec', code)} >{STATE}.out 2>/dev/null & pid=$!;"
        f" until grep -q '\"on\"' {STATE}.out; do sleep 0.1; done;"
        f" {RAMET} key revoke {key.id} >/dev/null; wait $pid; echo status $?; rm {STATE}.out"
    )
    status = int(said.split()[-1])
    assert status not in (0, 28), "the stream ended normally (0), or curl timed out (28)"
    assert key.refused() == "key_revoked"
    assert first.ask("GET", "/v1/sandboxes")[0] == 200


def test_rotated_key_keeps_the_sandboxes(first: Key) -> None:
    old = Key("key create --tier pro --name to-be-rotated")
    sandbox = old.create()
    old.ask("POST", f"{sandbox}/exec", {"code": "x = 5"})
    new = Key(f"key rotate {old.id} --grace 0")
    assert new.tenant == old.tenant and old.refused() == "key_revoked"
    assert '"data":"5"' in new.ask("POST", f"{sandbox}/exec", {"code": "print(x)"})[1]
    assert new.ask("DELETE", sandbox)[0] == 204


def test_keys_survive_a_killed_service(first: Key) -> None:
    gone = Key("key create --tier pro --name revoked-before")
    on_host(f"{RAMET} key revoke {gone.id}")
    sandbox = first.create()
    first.ask("POST", f"{sandbox}/exec", {"code": "x = 7"})
    on_host(
        f"for p in $(cat {STATE}.pid) $(pgrep -P $(cat {STATE}.pid)); do"
        " pgrep -P $p -f role=service; done | xargs kill -9"
    )
    listed = on_host(f"{RAMET} key list")  # waits for the next instance of the service
    assert gone.id in listed and first.id in listed
    wait_healthy()
    assert gone.refused() == "key_revoked"
    assert '"data":"7"' in first.ask("POST", f"{sandbox}/exec", {"code": "print(x)"})[1]
    assert first.ask("DELETE", sandbox)[0] == 204


def test_audit_log_has_each_key(first: Key) -> None:
    old = Key("key create --tier free --name 'of a \"tier\"'")
    new = Key(f"key rotate {old.id} --grace 60")
    on_host(f"{RAMET} key revoke {new.id}; {RAMET} key revoke {new.id}")
    text = on_host(f"{RAMET} audit")
    events: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert (events[0]["n"], events[0]["event"], events[0]["key"]) == (1, "key.created", first.id)
    made, rotated, revoked = events[-3:]
    assert (made["event"], made["key"], made["tenant"]) == ("key.created", old.id, old.tenant)
    assert made["text"] == 'tier free, name of a "tier"'
    assert (rotated["event"], rotated["key"]) == ("key.rotated", new.id)
    assert rotated["previous"] == old.id and "valid for at most 60 s" in rotated["text"]
    assert revoked["tenant"] == old.tenant
    assert new.text not in text and first.text not in text


def test_only_root_is_an_operator(first: Key) -> None:
    said = on_host(
        f"setpriv --reuid=65534 --regid=65534 --clear-groups {RAMET} key list 2>&1 || echo status $?"
    )
    assert "status 1" in said and "only root may send commands" in said
