# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from stand_in import Service

UI = Path(__file__).resolve().parents[2] / "ui"
CHROMIUM = "/usr/bin/chromium"
TIMEOUT_MS = 120000  # for a busy machine, and for guests under emulation
expect.set_options(timeout=TIMEOUT_MS)

# A name with markup, a change of direction, a control character and no place to break it.
HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>\u202egpj.exe\u0007' + "W" * 3000


def made(http: httpx.Client, name: str | None = None, **spec: Any) -> str:
    """Creates a sandbox and returns its id."""
    if name is not None:
        spec["metadata"] = {"name": name}
    answer = http.post("/v1/sandboxes", json=spec)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def forked(http: httpx.Client, parent: str, n: int) -> list[str]:
    """Forks a sandbox and returns the ids of all its children, in the order of the lists."""
    assert http.post(f"/v1/sandboxes/{parent}/fork", json={"n": n}).is_success
    return [str(one["id"]) for one in http.get(f"/v1/sandboxes/{parent}/children").json()]


class Running:
    """The running service, which has real guests."""

    base = os.environ.get("RAMET_HOST", "http://127.0.0.1:7070")


RUNNING = Running()


def go(page: Page, service: Service | Running, path: str = "") -> None:
    page.goto(f"{service.base}/ui/#/{path}")


def row(page: Page, one: str) -> Locator:
    return page.locator(f'[data-id="{one}"]')


def select(page: Page, *ids: str) -> None:
    for one in ids:
        row(page, one).get_by_role("checkbox").check()


def run(page: Page, code: str) -> Locator:
    """Runs code in the page of a sandbox; returns its cell."""
    area = page.get_by_label("Code", exact=True).and_(page.locator("textarea"))
    area.fill(code)
    area.press("Control+Enter")
    return page.locator(".cell").last


def drop(page: Page, files: dict[str, bytes]) -> None:
    """Drags files over the list of files and drops them there."""
    transfer = page.evaluate_handle(
        """(files) => {
             const transfer = new DataTransfer();
             const bytes = (data) => Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
             for (const [name, data] of files) transfer.items.add(new File([bytes(data)], name));
             return transfer;
           }""",
        [[name, base64.b64encode(data).decode()] for name, data in files.items()],
    )
    panel = page.locator(".panel")
    panel.dispatch_event("dragover", {"dataTransfer": transfer})
    expect(page.locator(".drop.over")).to_be_visible()
    panel.dispatch_event("drop", {"dataTransfer": transfer})
    for name in files:
        expect(page.get_by_role("row", name=name)).to_be_visible()


def dialog(page: Page) -> Locator:
    return page.locator("dialog[open]")


def button(place: Page | Locator, name: str) -> Locator:
    return place.get_by_role("button", name=name, exact=True)


def small_targets(page: Page) -> list[str]:
    """Returns what can be touched and is narrower or lower than 24 pixels."""
    found = page.locator("main :is(button, input, select, a)").evaluate_all(
        """all => all.filter((one) => !one.closest("p") && one.checkVisibility())
             .map((one) => [one.getBoundingClientRect(), one.outerHTML.slice(0, 100)])
             .filter(([box]) => box.width && (box.width < 24 || box.height < 24))
             .map(([box, html]) => `${box.width} x ${box.height}: ${html}`)"""
    )
    return list(found)


def fits(page: Page) -> bool:
    """Returns whether nothing is wider than the window."""
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth"
        )
    )
