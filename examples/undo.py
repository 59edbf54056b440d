# SPDX-License-Identifier: Apache-2.0
"""An agent breaks its machine and goes back.

The steps are what an agent might run, one after the other, in one sandbox. Before each of them the sandbox's
state is kept: that costs milliseconds. One step removes the libraries that every program needs. After it
nothing works any more, not even `ls`, so the machine could not be mended from inside. A rollback gives it the
state before that step, with the variables of its Python process; the broken state is kept for a look at it.
"""

from __future__ import annotations

import time

from ramet import Checkpoint, Sandbox

STEPS = [
    ("prepare", "notes = ['prepared']; open('/root/notes', 'w').write('prepared')"),
    ("measure", "notes.append('measured'); speed = 42"),
    ("clean up", "import shutil; shutil.rmtree('/usr/lib', ignore_errors=True)"),
]
HEALTH = "import subprocess; print(subprocess.run(['ls', '/root'], capture_output=True).returncode)"


def healthy(sbx: Sandbox) -> bool:
    result = sbx.run_code(HEALTH, timeout_seconds=10)
    return result.ok and result.stdout.strip() == "0"


def main() -> None:
    with Sandbox() as sbx:
        for name, code in STEPS:
            before = sbx.checkpoint(f"before {name}", ttl_seconds=3600)
            sbx.run_code(code, timeout_seconds=60)
            if healthy(sbx):
                print(f"{name}: ok")
                continue
            print(f"{name}: the machine is broken")
            began = time.perf_counter()
            broken = sbx.rollback(before, keep="broken")
            took = (time.perf_counter() - began) * 1000
            print(f"went back in {took:.0f} ms; the broken state is {broken.id if broken else 'lost'}")
            print("healthy again:", healthy(sbx))
        print("the agent still knows:", sbx.run_code("print(notes, speed)").stdout.strip())
        for one in Checkpoint.list(sandbox=sbx.id):
            one.delete()


if __name__ == "__main__":
    main()
