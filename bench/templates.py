# SPDX-License-Identifier: Apache-2.0
"""The time that a template saves: sandboxes of python-datasci compared with default ones, and with
the time of its imports in a new process."""

from __future__ import annotations

import json
import time

from files import run
from measure import Figures, api, figure, opened

NAME = "python-datasci"
IMPORTS = """
import json, subprocess, sys, time
took = []
for _ in range({runs}):
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pandas"], check=True)
    took.append(time.perf_counter() - began)
print(json.dumps(took))
"""


def create(paths: list[str], template: str) -> str:
    """Creates a sandbox and appends its API path to `paths`; returns the path."""
    answer = json.loads(api("POST", "/v1/sandboxes", {"template": template}))
    paths.append(f"/v1/sandboxes/{answer['id']}")
    return paths[-1]


def creates(template: str, code: str, runs: int) -> tuple[list[float], list[float]]:
    """Returns the milliseconds of creates, and of creates with a first call.

    The first one is not counted: a template's first sandbox waits for its image.
    """
    made, called = [], []
    for _ in range(runs + 1):
        with opened() as paths:
            began = time.perf_counter()
            box = create(paths, template)
            made.append((time.perf_counter() - began) * 1e3)
            run(box, code)
            called.append((time.perf_counter() - began) * 1e3)
    return made[1:], called[1:]


def templates(quick: bool) -> Figures:
    """Creates of python-datasci and default sandboxes, and import of pandas in a new process."""
    runs = 3 if quick else 20
    made, called = creates(NAME, "pd.DataFrame({'x': [1, 2]}).sum()", runs)
    plain, plain_called = creates("default", "sum([1, 2])", runs)
    with opened() as paths:
        box = create(paths, NAME)
        cold = json.loads(run(box, IMPORTS.format(runs=2 if quick else 5)))
    figures = {
        "create_datasci": figure(made, "ms"),
        "create_default": figure(plain, "ms"),
        "first_call_datasci": figure(called, "ms"),
        "first_call_default": figure(plain_called, "ms"),
        "import_pandas_new_process": figure([s * 1e3 for s in cold], "ms"),
    }
    for name, above, below in (
        ("datasci_to_default", "create_datasci", "create_default"),
        ("import_to_datasci_first_call", "import_pandas_new_process", "first_call_datasci"),
    ):
        ratio = figures[above]["median"] / figures[below]["median"]
        figures[name] = figure([ratio], "times")
    return figures
