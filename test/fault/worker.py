# SPDX-License-Identifier: Apache-2.0
"""A client that works while processes are killed, and checks that acknowledged operations hold."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from typing import Callable, Sequence, TypeVar

import ramet
from conftest import HOST
from processes import wait_until_ready
from ramet import Client, Sandbox

T = TypeVar("T")

UNANSWERED = (ramet.ConnectionFailed, ramet.Unavailable, ramet.ServerError)


class Gone(Exception):
    """The service reported that the VM has died: the state of the sandbox is lost."""


class Ledger:
    """Counts the acknowledged operations of all workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()

    def add(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1


class Worker:
    """A client that has one sandbox, or its Space, at a time, and the state it must find there."""

    KINDS = ("exec", "exec", "file", "fork", "freeze")

    def __init__(
        self, seed: int, ledger: Ledger, over: threading.Event, kinds: Sequence[str] = KINDS
    ) -> None:
        self.kinds = kinds
        self.rng = random.Random(seed)
        self.mine = {"worker": seed}
        self.ledger = ledger
        self.over = over
        self.client = Client(HOST)
        self.sbx: Sandbox | None = None
        self.vm_of: list[str] = []  # ids of the sandboxes, or of the Space, that the VM may have
        self.space = ""  # id of the Space while the sandbox is frozen
        self.resuming = False  # a resume of `space` was requested and not answered
        self.lost: list[list[str]] = []  # one copy of vm_of for each VM that was reported dead
        self.numbers: set[int] = set()
        self.files: dict[str, bytes] = {}
        self.next = 0
        self.failed: BaseException | None = None
        self.doing = ""  # the operation in flight
        self.power_is_cut = False  # a power cut may erase a sandbox and all record of it
        self.resumed: list[str] = []  # ids of Spaces whose resume was acknowledged

    # --- one operation, and its outcome

    def ask(self, what: str, fn: Callable[[], T]) -> T | None:
        """Tries an operation once; returns None if its outcome is unknown.

        Raises Gone if the VM was killed.
        """
        self.doing = what
        try:
            answer = fn()
        except UNANSWERED:
            self.ledger.add("not answered")
            wait_until_ready(self.client)
            return None
        except ramet.RametError as other:
            self.raise_if_gone(other)
            raise
        self.ledger.add(what)
        return answer

    def surely(self, fn: Callable[[], T]) -> T:
        """Retries an idempotent operation until it is answered."""
        while True:
            try:
                return fn()
            except UNANSWERED:
                wait_until_ready(self.client)
            except ramet.RametError as other:
                self.raise_if_gone(other)
                raise

    def raise_if_gone(self, error: ramet.RametError) -> None:
        forgotten = self.power_is_cut and self.sbx and type(error) is ramet.NotFound
        if forgotten or isinstance(error, ramet.VmDied):
            raise Gone from error

    def box(self) -> Sandbox:
        assert self.sbx
        return self.sbx

    def drop_unknown(self) -> None:
        """Deletes sandboxes that were created for this worker by requests without an answer."""
        for info in self.surely(self.client.list_sandboxes):
            if info.raw["metadata"] == self.mine and info.id not in self.vm_of:
                self.surely(lambda: self.client.delete_sandbox(info.id))
                self.ledger.add("created without an answer")

    def create(self) -> None:
        sbx = self.ask("create", lambda: Sandbox(client=self.client, metadata=self.mine))
        if not sbx:
            self.drop_unknown()
            return
        self.sbx, self.vm_of = sbx, [sbx.id]
        self.numbers, self.files = set(), {}
        # The call may run twice: the second run must not replace the set by an empty one.
        self.surely(lambda: self.run(sbx, "done = globals().get('done', set())"))

    def run(self, sbx: Sandbox, code: str) -> str:
        result = sbx.run_code(code)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def exec(self) -> None:
        n = self.next = self.next + 1
        if self.ask("exec", lambda: self.run(self.box(), f"done.add({n})")) is not None:
            self.numbers.add(n)

    def file(self) -> None:
        n = self.next = self.next + 1
        path, data = f"/root/f{n}", self.rng.randbytes(self.rng.randrange(1, 200_000))

        def write() -> bool:
            self.client.write_file(self.box().id, path, data)
            return True

        if self.ask("file", write):
            self.files[path] = data

    def fork(self) -> None:
        children = self.ask("fork", lambda: self.box().fork(1))
        if not children:
            self.drop_unknown()
            return
        child = children[0]
        try:
            self.check_in(child, self.numbers, self.files)
            n = self.next = self.next + 1
            self.surely(lambda: self.run(child, f"done.add({n})"))
            if self.rng.random() < 0.5:
                self.merge(child, n)
            else:
                self.surely(child.close)
        except Gone:
            self.ledger.add("child's VM killed")
            self.lost.append([*self.vm_of, child.id])

    def merge(self, child: Sandbox, n: int) -> None:
        self.vm_of.append(child.id)

        def merged() -> bool:
            self.box().merge_into(child)
            return True

        if self.ask("merge", merged):
            self.numbers.add(n)
        elif n in self.state(self.box()):
            self.numbers.add(n)
        else:
            self.surely(child.close)

    def freeze(self) -> None:
        sbx = self.box()
        self.space = self.ask("freeze", lambda: sbx.freeze().id) or ""
        while not self.space:  # outcome unknown: it is a sandbox or a Space, never neither
            try:
                if self.surely(sbx.info).state != "freezing":
                    return
            except ramet.Frozen:
                spaces = self.surely(self.client.list_spaces)
                self.space = next(one.id for one in spaces if one.raw["sandbox"] == sbx.id)
        self.sbx, self.resuming = None, False

    def resume(self) -> None:
        try:
            sbx = self.ask("resume", lambda: Sandbox.resume(self.space, client=self.client))
            if sbx:
                self.resumed.append(self.space)
            self.resuming = True
        except ramet.Conflict:
            assert self.resuming, f"{self.space}: busy although no resume was requested"
            return
        except ramet.NotFound:
            assert self.resuming, f"{self.space}: its freeze was acknowledged, but it is lost"
            sbx = self.resumed_sandbox()
        if sbx:
            self.sbx, self.vm_of, self.space = sbx, [sbx.id], ""
            self.check_in(sbx, self.numbers, self.files)

    def resumed_sandbox(self) -> Sandbox:
        """Returns the sandbox that a resume without an answer has created."""
        self.vm_of = [self.space]  # the service's log says which sandbox it became
        for info in self.surely(self.client.list_sandboxes):
            if info.raw["metadata"] == self.mine:
                return self.surely(lambda: Sandbox.connect(info.id, client=self.client))
        raise Gone

    # --- checks

    def state(self, sbx: Sandbox) -> set[int]:
        said = self.surely(lambda: self.run(sbx, "print(sorted(done))"))
        return set(json.loads(said))

    def check_in(self, sbx: Sandbox, numbers: set[int], files: dict[str, bytes]) -> None:
        lost = numbers - self.state(sbx)
        assert not lost, f"{sbx.id}: calls were acknowledged, but are lost: {sorted(lost)}"
        for path in self.rng.sample(sorted(files), min(3, len(files))):
            assert self.surely(lambda: sbx.download(path)) == files[path], f"{sbx.id}: {path}"

    def check_all(self) -> None:
        while self.space:
            self.resume()
        if self.sbx:
            self.check_in(self.sbx, self.numbers, self.files)
            for path, data in self.files.items():
                assert self.sbx.download(path) == data
            self.sbx.close()
            self.sbx = None
        again = set(self.resumed) & {one.id for one in self.client.list_spaces()}
        assert not again, f"these Spaces were resumed, but still exist: {again}"

    def ended(self) -> None:
        """Records that the VM was killed."""
        self.ledger.add("sandbox's VM killed")
        self.lost.append(self.vm_of)
        # If the parent's VM died during a merge, the child may run: drop_unknown() deletes it.
        self.sbx, self.space, self.vm_of = None, "", []

    # --- the worker's thread

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def join(self) -> None:
        self.thread.join()
        if self.failed:
            raise self.failed

    def finish(self) -> None:
        """Checks and deletes everything. Call it once nothing is killed any more."""
        try:
            self.check_all()
        except Gone:
            self.ended()
        self.drop_unknown()

    def _step(self) -> None:
        if self.space:
            self.resume()
            return
        if not self.sbx:
            self.create()
            return
        getattr(self, self.rng.choice(self.kinds))()
        if self.sbx and self.rng.random() < 0.2:
            self.check_in(self.sbx, self.numbers, self.files)

    def _run(self) -> None:
        try:
            while not self.over.is_set():
                try:
                    self._step()
                except Gone:
                    self.ended()
        except BaseException as bad:  # join() raises it in the test's thread
            self.failed = bad
