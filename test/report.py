# SPDX-License-Identifier: Apache-2.0
"""Reads what the groups of test/run.sh leave in build/results.

report.py RESULTS sum GROUP     prints the numbers of tests that passed, failed and were skipped, then the
                                name of each that failed; updates timings.tsv
report.py RESULTS slowest       prints the 40 slowest tests and the time of each file, from timings.tsv

A group leaves JUnit files (GROUP.xml, GROUP-*.xml) of pytest and CTest, and GROUP.items: a line with
exit status, seconds, CPU seconds and name for each check that is not a test program. The name WHOLE
stands for the group itself. timings.tsv has the columns group, file, test, seconds and CPU seconds; the
last is empty where it is not known, as for the tests in a JUnit file.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 40
SKIPPED = 77  # the exit status of a check that cannot run here
WHOLE = "(whole group)"


@dataclass
class Test:
    """One test or check of a group, and how it ended: "passed", "failed" or "skipped"."""

    file: str
    name: str
    outcome: str
    seconds: float
    cpu_seconds: float | None = None


def from_junit(path: Path) -> list[Test]:
    """Returns the tests in a JUnit file of pytest or CTest."""
    tests = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name", "")
        outcome = "passed"
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "failed"
        elif (skipped := case.find("skipped")) is not None or case.get("status") == "disabled":
            outcome = "skipped"
            # CTest calls a test skipped whose program was not built.
            if skipped is not None and skipped.get("message", "").startswith("Unable to find"):
                outcome = "failed"
        tests.append(Test(case.get("file", name), name, outcome, float(case.get("time", 0))))
    return tests


def from_items(path: Path) -> list[Test]:
    """Returns the checks that a group recorded, the group itself included."""
    tests = []
    for line in path.read_text().splitlines():
        status, seconds, cpu_seconds, name = line.split(" ", 3)
        outcome = {"0": "passed", str(SKIPPED): "skipped"}.get(status, "failed")
        tests.append(Test("", name, outcome, float(seconds), float(cpu_seconds)))
    return tests


def of_group(results: Path, group: str) -> list[Test]:
    """Returns all that one group left."""
    tests = []
    for path in sorted([*results.glob(f"{group}.xml"), *results.glob(f"{group}-*.xml")]):
        tests += from_junit(path)
    items = results / f"{group}.items"
    return tests + (from_items(items) if items.exists() else [])


def update_timings(results: Path, group: str, tests: list[Test]) -> None:
    """Replaces the group's rows in timings.tsv."""
    path = results / "timings.tsv"
    rows = path.read_text().splitlines() if path.exists() else []
    rows = [row for row in rows if row.split("\t")[0] != group]
    for test in tests:
        cpu = "" if test.cpu_seconds is None else f"{test.cpu_seconds:.2f}"
        rows.append("\t".join([group, test.file, test.name, f"{test.seconds:.2f}", cpu]))
    path.write_text("\n".join(rows) + "\n")


def print_sum(results: Path, group: str) -> None:
    tests = of_group(results, group)
    update_timings(results, group, tests)
    tests = [test for test in tests if test.name != WHOLE]
    outcomes = [test.outcome for test in tests]
    print(*(outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")))
    for test in tests:
        if test.outcome == "failed":
            print(test.name)


def print_slowest(results: Path) -> None:
    path = results / "timings.tsv"
    if not path.exists():
        raise SystemExit(f"dev: {path} is missing: run the tests first")
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: -float(row[3]))
    print(f"seconds  the {SLOWEST} slowest tests")
    for group, file, name, seconds, _ in [row for row in rows if row[2] != WHOLE][:SLOWEST]:
        print(f"{float(seconds):7.1f}  {group}  {file if file != name else ''}  {name}")
    files: dict[tuple[str, str], float] = {}
    for group, file, name, seconds, _ in rows:
        if name != WHOLE:
            files[group, file or name] = files.get((group, file or name), 0) + float(seconds)
    print("\nseconds  file, or check")
    for (group, file), total in sorted(files.items(), key=lambda item: -item[1]):
        print(f"{total:7.1f}  {group}  {file}")
    print("\nseconds  CPU seconds  group")
    for group, _, name, seconds, cpu_seconds in rows:
        if name == WHOLE:
            print(f"{float(seconds):7.1f}  {cpu_seconds:>11}  {group}")


def main() -> None:
    results = Path(sys.argv[1])
    if sys.argv[2] == "slowest":
        print_slowest(results)
    else:
        print_sum(results, sys.argv[3])


if __name__ == "__main__":
    main()
