# SPDX-License-Identifier: Apache-2.0
"""The page /ui/ with a thousand sandboxes, in Chromium on this machine; prints samples as JSON.

Usage: page.py SECONDS OPENINGS, called by run.py. The service is the real one over stand-ins of VMs. The tree scrolls in
each frame, while sandboxes are deleted and forked. Since other programs may hold up Chromium, the CPU
time of the page's tasks stands beside the time between frames.
"""

from __future__ import annotations

import gzip
import itertools
import json
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from stand_in import Service

UI = Path(__file__).resolve().parents[2] / "ui"
PARENTS, CHILDREN = 100, 9  # a thousand sandboxes
CHANGES, CLIENTS = 50, 5  # per second, and who makes them
TASK_MS = 1.0  # shorter tasks are not counted
TIMEOUT_MS = 120000

# Scrolls to and fro; returns the milliseconds between frames.
SCROLL = """(seconds) => new Promise((resolve) => {
  const body = document.querySelector(".tree .scroll"), times = [];
  let step = 30, last = null, began = performance.now();
  requestAnimationFrame(function frame(now) {
    if (last !== null) times.push(now - last);
    last = now;
    if (now - began > seconds * 1000) return resolve(times);
    if (body.scrollTop + step < 0 || body.scrollTop + step > body.scrollHeight - body.clientHeight) step = -step;
    body.scrollTop += step;
    requestAnimationFrame(frame);
  });
})"""
FIRST_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  for (const one of list.getEntriesByName("first-contentful-paint")) resolve(one.startTime);
}).observe({ type: "paint", buffered: true }))"""

Samples = dict[str, tuple[str, list[float]]]  # by name: the unit, and each


class Changes:
    """Deletes a child of each parent in turn and forks the parent again, until `stop`."""

    def __init__(self, service: Service, parents: list[str]) -> None:
        self.done = 0
        self.failed: list[Exception] = []
        self.stopped = threading.Event()
        own = [(service, parents[i::CLIENTS]) for i in range(CLIENTS)]
        self.threads = [threading.Thread(target=self._run, args=one) for one in own]
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()

    def _run(self, service: Service, parents: list[str]) -> None:
        try:
            with service.client() as http:
                for i, parent in enumerate(itertools.cycle(parents)):
                    due = self.began + 2 * i * CLIENTS / CHANGES
                    if self.stopped.wait(max(0, due - time.monotonic())):
                        return
                    replace_child(http, parent)
                    self.done += 2
        except (httpx.HTTPError, LookupError) as failed:
            self.failed.append(failed)

    def stop(self) -> float:
        """Returns the changes per second."""
        rate = self.done / (time.monotonic() - self.began)
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise self.failed[0]
        return rate


def replace_child(http: httpx.Client, parent: str) -> None:
    child = http.get(f"/v1/sandboxes/{parent}/children").json()[0]["id"]
    http.delete(f"/v1/sandboxes/{child}").raise_for_status()
    http.post(f"/v1/sandboxes/{parent}/fork", json={"n": 1}).raise_for_status()


def fill(http: httpx.Client) -> list[str]:
    """Makes all sandboxes; returns the parents."""
    parents = []
    for i in range(PARENTS):
        made = http.post("/v1/sandboxes", json={"metadata": {"name": f"agent {i}"}}).raise_for_status()
        parents.append(made.json()["id"])
        http.post(f"/v1/sandboxes/{parents[-1]}/fork", json={"n": CHILDREN}).raise_for_status()
    return parents


def open_page(page: Page, service: Service) -> float:
    """Opens the tree with all rows; returns the milliseconds until its first paint."""
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{service.base}/ui/")
    paint: float = page.evaluate(FIRST_PAINT)
    page.locator(".total", has_text=f"{PARENTS * (CHILDREN + 1)} sandboxes").wait_for()
    return paint


def first_paint(browser: Browser, service: Service) -> float:
    """Opens the page with an empty cache."""
    context = browser.new_context(viewport={"width": 1200, "height": 760})
    try:
        return open_page(context.new_page(), service)
    finally:
        context.close()


def task_cpu(trace: bytes) -> list[float]:
    """Returns the CPU time in ms of each task of the page's main thread."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    main = {(one["pid"], one["tid"]) for one in events if one.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [one for one in events if one["name"].endswith("RunTask") and (one["pid"], one["tid"]) in main]
    return [ms for one in tasks if (ms := one.get("tdur", 0) / 1000) >= TASK_MS]


def frames(browser: Browser, service: Service, parents: list[str], seconds: float) -> Samples:
    page = browser.new_page(viewport={"width": 1200, "height": 760})
    open_page(page, service)
    quiet: list[float] = page.evaluate(SCROLL, seconds)
    changes = Changes(service, parents)
    times: list[float] = page.evaluate(SCROLL, seconds)
    browser.start_tracing(page=page, categories=["toplevel"])
    page.evaluate(SCROLL, seconds)
    trace = browser.stop_tracing()
    rate = changes.stop()
    return {
        "frame_scroll_ms": ("ms", quiet),
        "frame_scroll_and_changes_ms": ("ms", times),
        "task_cpu_ms": ("ms", task_cpu(trace)),
        "changes": ("/s", [rate]),
    }


def measured(service: Service, seconds: float, openings: int) -> Samples:
    with service.client() as http:
        parents = fill(http)
    with sync_playwright() as playwright:
        # Its own sandbox does not work for root. Nothing else than the page is opened.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        paints = [first_paint(browser, service) for _ in range(openings)]
        found = frames(browser, service, parents, seconds)
        browser.close()
    packed = sum(len(gzip.compress(one.read_bytes(), 9)) for one in UI.iterdir() if one.name != "CMakeLists.txt")
    return {
        "first_paint_ms": ("ms", paints),
        **found,
        "size_compressed_kib": ("KiB", [packed / 1024]),
    }


def main(seconds: float, openings: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # six for each stand-in
    with tempfile.TemporaryDirectory() as home:
        vms = PARENTS * (CHILDREN + 1) + 50
        service = Service(Path(home), f"ui_dir={UI}", f"max_vms={vms}", f"fork_max={CHILDREN}", agent=False)
        try:
            print(json.dumps(measured(service, seconds, openings)))
        finally:
            service.kill()  # nobody needs its orderly end, which takes minutes on a busy machine


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
