# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from stand_in import Service

UI = Path(__file__).resolve().parents[2] / "ui"
expect.set_options(timeout=30000)

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


def go(page: Page, service: Service, path: str = "") -> None:
    page.goto(f"{service.base}/ui/#/{path}")


def row(page: Page, one: str) -> Locator:
    return page.locator(f'[data-id="{one}"]')


def dialog(page: Page) -> Locator:
    return page.locator("dialog[open]")


def button(place: Page | Locator, name: str) -> Locator:
    return place.get_by_role("button", name=name, exact=True)


def fits(page: Page) -> bool:
    """Returns whether nothing is wider than the window."""
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth"
        )
    )
