# SPDX-License-Identifier: Apache-2.0
"""What a request costs more if another host of the fleet passes it on to the one that has the sandbox.

Two hosts on this machine, each the service with stand-ins of VMs. The near one is drained, so that it passes creates
on, too.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator

from measure import BenchError, Figures, figure

TOP = Path(__file__).resolve().parent.parent
sys.path += [str(TOP / folder) for folder in ("test/service", "test", "sdk/python/src")]

NEAR, FAR = 1, 2
CLIENTS = 8
BULK_MIB = 64
REFILL_S = 0.05  # after a create: a host without a warm sandbox would refuse what another host passes on
ROOM = ("max_vms=128", "pool_warm=8", "client_requests_s=0")


class Client:
    """A client of one host, with one connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body)
        self.line.request(method, path, data, {"content-type": "application/json"} if data else {})
        answer = self.line.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise BenchError(f"{method} {path}: {answer.status} {text.decode()}")
        return text

    def create(self) -> str:
        return f"/v1/sandboxes/{json.loads(self.ask('POST', '/v1/sandboxes', {}))['id']}"

    def fork(self, path: str) -> str:
        return f"/v1/sandboxes/{json.loads(self.ask('POST', f'{path}/fork', {'n': 1}))['children'][0]}"


@contextmanager
def hosts() -> Iterator[tuple[Client, Client]]:
    """Yields clients of the host that has the sandboxes, and of the one that passes requests on."""
    from fleet import Fleet  # needs packages that other benchmarks run without

    with tempfile.TemporaryDirectory(prefix="ramet-bench-", dir="/dev/shm") as home, ExitStack() as stack:
        fleet = Fleet(Path(home))
        stack.callback(fleet.stop)
        fleet.add(NEAR, state="draining")
        far = fleet.start(FAR, *ROOM, agent=True, others=(NEAR,))
        near = fleet.start(NEAR, *ROOM, agent=True)
        yield Client(far.port), Client(near.port)


def in_turns(name: str, ask: Callable[[Client], Any], runs: int, direct: Client, routed: Client) -> Figures:
    """Asks both hosts in turns. If `ask` makes a sandbox, it returns its path, which is deleted in between."""
    samples: dict[Client, list[float]] = {direct: [], routed: []}
    for i in range(2 * runs):
        client = (direct, routed)[i % 2]
        began = time.perf_counter()
        made = ask(client)
        samples[client].append((time.perf_counter() - began) * 1000)
        if isinstance(made, str):
            direct.ask("DELETE", made)
            time.sleep(REFILL_S)
    return {f"{name}_direct": figure(samples[direct], "ms"), f"{name}_routed": figure(samples[routed], "ms")}


def repeat(port: int, path: str, until: float) -> int:
    """Describes a sandbox again and again; returns how often."""
    client, n = Client(port), 0
    while time.time() < until:
        client.ask("GET", path)
        n += 1
    return n


def rate(client: Client, path: str, seconds: float) -> float:
    """Returns the requests per second of CLIENTS connections."""
    with ProcessPoolExecutor(CLIENTS) as processes:
        until = time.time() + seconds
        counts = [processes.submit(repeat, client.port, path, until) for _ in range(CLIENTS)]
        return sum(one.result() for one in counts) / seconds


def routed(quick: bool) -> Figures:
    """Requests at the host that has the sandbox, and through another host of its fleet."""
    runs, seconds = (100, 1) if quick else (1500, 5)
    write = {"code": f"head -c {BULK_MIB << 20} /dev/zero", "language": "bash"}
    call = {"code": "echo 1", "language": "bash", "output": "chunks"}
    figures: Figures = {}
    with hosts() as both:
        path = both[0].create()
        steps: list[tuple[str, Callable[[Client], Any], int]] = [
            ("describe", lambda at: at.ask("GET", path), runs),
            ("call", lambda at: at.ask("POST", f"{path}/exec", call), runs),
            ("create", Client.create, runs // 5),
            ("fork", lambda at: at.fork(path), runs // 5),
            (f"output_{BULK_MIB}_mib", lambda at: at.ask("POST", f"{path}/exec", write), 5),
        ]
        for name, ask, n in steps:
            figures |= in_turns(name, ask, n, *both)
        for name, client in zip(("direct", "routed"), both):
            rates = [rate(client, path, seconds) for _ in range(1 if quick else 3)]
            figures[f"requests_per_s_{name}"] = figure(rates, "1/s")
    return figures
