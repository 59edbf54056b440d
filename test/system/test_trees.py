# SPDX-License-Identifier: Apache-2.0
"""Trees of real sandboxes: what their budgets stop, and what each sandbox costs."""

from __future__ import annotations

import threading
import time

import pytest
from ramet import CapReached, Client, NotFound, Sandbox, Space

WAIT_S = 300.0


BURN = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"


def cpu_of(root: Sandbox) -> dict[str, float]:
    return {node.id: node.cpu_seconds for node in root.tree().nodes}


def test_each_sandbox_has_the_cpu_time_that_it_uses(client: Client) -> None:
    with Sandbox(client=client, tree={"live": 3}) as root:
        busy, idle = root.fork(2)
        before = cpu_of(root)
        for _ in range(100):  # a guest also counts time in which its host ran others
            busy.run_code(BURN)
            if cpu_of(root)[busy.id] > before[busy.id] + 3:
                break
        cpu = cpu_of(root)
        assert cpu[busy.id] > before[busy.id] + 3
        assert cpu[idle.id] < before[idle.id] + 3
        busy.close()
        found = root.tree()
        assert found.cpu_seconds > 3 and found.live == 2
        root.merge_into(idle)
        assert root.tree().cpu_seconds >= found.cpu_seconds
        assert [node.id for node in root.tree().nodes] == [root.id]


def test_tree_ends_when_its_cpu_time_is_used_up(client: Client) -> None:
    root = Sandbox(client=client, tree={"cpu_seconds": 20})
    (child,) = root.fork()
    with pytest.raises(NotFound) as end:
        child.run_code("while True: pass")
    assert end.value.code == "tree_limit"
    for one in (root, child):
        with pytest.raises(NotFound, match="cpu_seconds is 20") as gone:
            one.info()
        assert gone.value.code == "tree_limit"
        one.close()


def test_tree_ends_when_its_time_is_over(client: Client) -> None:
    root = Sandbox(client=client, tree={"wall_seconds": 20}, persistent=True)
    (child,) = root.fork()
    with pytest.raises(NotFound):
        child.run_code("import time; time.sleep(3600)")
    with pytest.raises(NotFound, match="wall_seconds is 20"):
        root.info()
    root.close()
    child.close()


def test_fork_waits_for_room(client: Client) -> None:
    with Sandbox(client=client, tree={"live": 2, "at_limit": "wait"}) as root:
        root.run_code("x = 1")
        (first,) = root.fork()
        later: list[Sandbox] = []
        waiting = threading.Thread(target=lambda: later.extend(root.fork()))
        waiting.start()
        deadline = time.monotonic() + WAIT_S
        while root.tree().waiting == 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        root.run_code("x = 2")  # the parent can be used meanwhile
        first.close()
        waiting.join(WAIT_S)
        assert later[0].run_code("print(x)").stdout == "2\n"
        later[0].close()


def test_oldest_leaf_is_frozen_and_can_be_resumed(client: Client) -> None:
    with Sandbox(client=client, tree={"live": 2, "at_limit": "freeze_oldest_leaf"}) as root:
        (first,) = root.fork()
        first.run_code("x = 'first'")
        (second,) = root.fork()
        (space,) = root.tree().spaces
        with pytest.raises(CapReached) as full:
            Sandbox.resume(space, client=client)
        assert full.value.code == "tree_limit"
        second.close()
        with Sandbox.resume(space, client=client) as resumed:
            assert resumed.run_code("print(x)").stdout == "first\n"
            assert (resumed.info().root, resumed.info().depth) == (root.id, 1)
        assert space not in [one.id for one in Space.list(client=client)]


def test_sandbox_with_the_lowest_score_makes_room(client: Client) -> None:
    with Sandbox(client=client, tree={"live": 3, "at_limit": "end_lowest_score"}) as root:
        worst, best = root.fork(2)
        worst.update(score=-1)
        best.update(score=1)
        (more,) = best.fork()
        with pytest.raises(NotFound) as end:
            worst.run_code("1")
        assert end.value.code == "tree_limit"
        client.delete_tree(best.id)
        assert [node.id for node in root.tree().nodes] == [root.id]
        for one in (worst, best, more):
            one.close()
