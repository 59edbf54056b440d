# SPDX-License-Identifier: Apache-2.0
"""Forks in waves while VM processes are killed and clients disconnect: survivors keep their state,
and nothing is left over."""

from __future__ import annotations

import os
import random
import threading
from contextlib import closing

import httpx
import pytest

import ramet
from conftest import HOST, on_host
from leftover import assert_nothing_left, held_beyond_pool
from processes import process_of
from ramet import Client, Sandbox

WAVES = int(os.environ.get("RAMET_FORK_WAVES", "2"))
CHILDREN = int(os.environ.get("RAMET_FORK_CHILDREN", "6"))

# The port forwarder of an emulated host has a short accept backlog and resets connections beyond
# it, so connections are opened one after the other.
_opening = threading.Lock()


def opened(timeout: float) -> httpx.Client:
    with _opening:
        http = httpx.Client(base_url=HOST, timeout=timeout, trust_env=False)
        http.get("/v1/healthz", timeout=60)
    return http


def with_own_client(child: Sandbox) -> Sandbox:
    """Returns the same sandbox with a client, and so a connection, that nobody shares."""
    with _opening:
        own = Client(HOST)
        assert own.healthz()
    return Sandbox.connect(child.id, client=own)


def disconnect_in_a_call(child: Sandbox) -> None:
    """Starts a call and disconnects while it runs; the call continues without a client."""
    with closing(opened(timeout=30)) as http:
        body = {"code": "import time\nprint('on')\ntime.sleep(0.2)\nstate.append('alone')"}
        with http.stream("POST", f"/v1/sandboxes/{child.id}/exec", json=body) as answer:
            next(answer.iter_raw())


def disconnect_in_a_fork(child: Sandbox) -> None:
    """Requests a fork and disconnects before the answer: the service must delete the children."""
    with closing(opened(timeout=0.05)) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post(f"/v1/sandboxes/{child.id}/fork", json={"n": 2})


def one_life(child: Sandbox, rng: random.Random) -> None:
    """Puts one child through a random fate, and checks that it keeps its own state."""
    mine = ["parent", child.id]
    child.run_code(f"state.append({child.id!r})")
    fate = rng.choice(["live", "fork", "killed", "disconnect", "disconnect in a fork"])
    if fate == "fork":
        with child.fork(1)[0] as grandchild:
            grandchild.run_code("state.append('grandchild')")
            said = grandchild.run_code("print(state)").stdout
            assert said == f"{mine + ['grandchild']}\n"
    elif fate == "killed":
        on_host(f"kill -9 {process_of(child)}")
        with pytest.raises(ramet.VmDied):
            child.run_code("print(state)")
        return
    elif fate == "disconnect":
        disconnect_in_a_call(child)
        mine.append("alone")
    elif fate == "disconnect in a fork":
        disconnect_in_a_fork(child)
    assert child.run_code("print(state)").stdout == f"{mine}\n", fate


def wave(client: Client, rng: random.Random) -> None:
    with Sandbox(client=client) as parent:
        parent.run_code("state = ['parent']")
        children = [with_own_client(child) for child in parent.fork(CHILDREN)]
        failed: list[BaseException] = []

        def live(child: Sandbox, seed: int) -> None:
            try:
                with closing(child):  # `with` alone leaves a connected sandbox running
                    one_life(child, random.Random(seed))
            except BaseException as bad:  # raised again in the test's thread
                failed.append(bad)

        threads = [
            threading.Thread(target=live, args=(child, rng.randrange(2**32))) for child in children
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        assert parent.run_code("print(state)").stdout == "['parent']\n"


@pytest.mark.timeout(1800 + 300 * WAVES)
def test_waves_of_forks_leave_nothing(client: Client, http: httpx.Client) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}, {WAVES} waves of {CHILDREN}")
    rng = random.Random(seed)
    wave(client, rng)  # first, since some resources are created once, with the first fork
    before = held_beyond_pool(http)
    for _ in range(WAVES):
        wave(client, rng)
    assert_nothing_left(before, http)
