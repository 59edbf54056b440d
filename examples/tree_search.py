# SPDX-License-Identifier: Apache-2.0
"""Best of five: loads data once, forks, tries a different plan in each child, keeps the best state.

The data are three months of hourly power demand, generated in the sandbox. A plan is a way to predict
the last two weeks from the weeks before. Nothing is loaded twice: each child begins with all that the
parent had in memory.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Callable, TypeVar

from ramet import RametError, Sandbox

T = TypeVar("T")

LOAD = """
import csv, math, random

random.seed(7)
with open('/root/demand.csv', 'w', newline='') as f:
    rows = csv.writer(f)
    for hour in range(24 * 91):
        day = math.sin((hour % 24 - 7) / 24 * 2 * math.pi)
        week = 0.8 if hour // 24 % 7 > 4 else 1.0
        rows.writerow([hour, round((50 + 12 * day) * week + hour / 200 + random.gauss(0, 1.5), 2)])

with open('/root/demand.csv') as f:
    demand = [float(value) for _, value in csv.reader(f)]
known, hidden = demand[:-24 * 14], demand[-24 * 14:]
print(f'{len(demand)} hours, of which {len(hidden)} are to be predicted')
"""

PLANS = {
    "the mean of all": """
model = {'level': sum(known) / len(known)}
def predict(hour):
    return model['level']
""",
    "the last day again": """
model = {'day': known[-24:]}
def predict(hour):
    return model['day'][hour % 24]
""",
    "the last week again": """
model = {'week': known[-168:]}
def predict(hour):
    return model['week'][(hour - len(known)) % 168]
""",
    "the mean of each hour of the day": """
model = {'hours': [sum(known[h::24]) / len(known[h::24]) for h in range(24)]}
def predict(hour):
    return model['hours'][hour % 24]
""",
    "the mean of each hour of the week, and a trend": """
n, mean = len(known), sum(known) / len(known)
slope = sum((h - n / 2) * (v - mean) for h, v in enumerate(known)) / (n * (n * n - 1) / 12)
flat = [v - slope * h for h, v in enumerate(known)]
model = {'slope': slope, 'week': [sum(flat[h::168]) / len(flat[h::168]) for h in range(168)]}
def predict(hour):
    return model['week'][hour % 168] + model['slope'] * hour
""",
}

SCORE = """
import json
error = sum(abs(predict(len(known) + i) - v) for i, v in enumerate(hidden)) / len(hidden)
with open('/root/model.json', 'w') as f:
    json.dump(model, f)
print(error)
"""


def timed(title: str, work: Callable[[], T]) -> T:
    """Runs one step and prints how long it took."""
    began = time.perf_counter()
    result = work()
    print(f"{(time.perf_counter() - began) * 1000:8.1f} ms  {title}")
    return result


def run(sbx: Sandbox, code: str) -> str:
    """Returns what the code prints; an exception in the code ends this program."""
    result = sbx.run_code(code)
    if not result.ok:
        raise SystemExit(result.stderr)
    return result.stdout.strip()


def attempt(child: Sandbox, plan: str) -> tuple[float, float]:
    """Returns the mean error of a plan, and the milliseconds it took."""
    began = time.perf_counter()
    error = float(run(child, f"plan = {plan!r}\n" + PLANS[plan] + SCORE))
    return error, (time.perf_counter() - began) * 1000


def main() -> None:
    with ExitStack() as sandboxes:  # closes all of them, also after an exception
        parent = sandboxes.enter_context(timed("create a sandbox", Sandbox))
        print(" " * 13 + "| " + timed("load the data, once", lambda: run(parent, LOAD)))
        children = timed(f"fork it into {len(PLANS)}", lambda: parent.fork(len(PLANS)))
        for child in children:
            sandboxes.enter_context(child)
        with ThreadPoolExecutor(len(PLANS)) as threads:
            scores = timed(
                "run all plans, each in a separate child",
                lambda: list(threads.map(attempt, children, PLANS)),
            )
        for (error, ms), plan in sorted(zip(scores, PLANS)):
            print(f"             | mean error {error:6.2f}  in {ms:7.1f} ms  {plan}")
        best = children[min(range(len(children)), key=lambda i: scores[i][0])]
        diff = timed("list the changes of the best one", lambda: parent.diff(best, ["/root"]))
        print(f"             | added {diff.added}, modified {diff.modified}")
        timed("merge the best into the parent", lambda: parent.merge_into(best))
        for child in children:
            child.close()  # does nothing for the best one, which was merged
        tomorrow = "print(f'{plan}: {predict(len(demand) + 12):.1f} at noon tomorrow')"
        print(" " * 13 + "| " + timed("ask the parent", lambda: run(parent, tomorrow)))
    print("done: all sandboxes are closed")


if __name__ == "__main__":
    try:
        main()
    except RametError as error:
        raise SystemExit(f"tree_search: {error}") from None
