# SPDX-License-Identifier: Apache-2.0
"""The page of the audit log: newest first, live, filtered and bounded."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, expect

from pages import HOSTILE, button, fits, go, made
from stand_in import Service

LOG = re.compile("/v1/events[?]since=0&newest_first=1&limit=1000$")  # the list, not the followed stream
ID = "sbx_" + 32 * "a"


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr:visible")


def event(n: int, **more: Any) -> dict[str, Any]:
    return {
        "n": n,
        "id": f"evt_{n:032x}",
        "time": "2026-01-31T23:59:59.123Z",
        "event": "sandbox.created",
        "tenant": "local",
        "sandbox": ID,
        "template": "default",
        **more,
    }


def answer(page: Page, *events: dict[str, Any]) -> None:
    """Answers requests for the list with these events, which are oldest first."""
    body = "".join(json.dumps(one) + "\n" for one in reversed(events))
    page.route(LOG, lambda route: route.fulfill(status=200, body=body, content_type="application/x-ndjson"))


def test_events_are_listed_live_newest_first(page: Page, service: Service, http: httpx.Client) -> None:
    first = made(http)
    go(page, service, "events")
    newest = rows(page).first
    expect(newest).to_contain_text("sandbox.created")
    expect(newest.get_by_role("link")).to_have_attribute("href", f"#/sandbox/{first}")
    http.delete(f"/v1/sandboxes/{first}")
    expect(newest).to_contain_text("sandbox.deleted")
    expect(newest).to_contain_text("it was deleted")
    expect(rows(page).nth(1)).to_contain_text("sandbox.created")
    ids = page.locator("main tbody tr").evaluate_all("all => all.map(one => one.dataset.id)")
    log = [json.loads(line)["id"] for line in http.get("/v1/events").text.splitlines()]
    assert ids == log[::-1]


def test_events_are_filtered_by_text(page: Page, service: Service, http: httpx.Client) -> None:
    # Numbers that the service does not give to its own events.
    answer(page, event(-3), event(-2, event="sandbox.died", text="its VM ended"), event(-1))
    go(page, service, "events")
    expect(rows(page)).to_have_count(3)
    page.get_by_label("Search events").fill("VM ended")
    expect(rows(page)).to_have_count(1)
    expect(page.locator(".total")).to_have_text("1 of 3")
    made(http)  # a new event that does not fit
    expect(page.locator(".total")).to_have_text("1 of 4")
    page.get_by_label("Search events").fill("nothing like this")
    expect(page.get_by_role("heading", name="Nothing fits")).to_be_visible()
    button(page, "Show all").click()
    expect(rows(page)).to_have_count(4)


def test_only_the_newest_events_are_kept(page: Page, service: Service, http: httpx.Client) -> None:
    answer(page, *(event(n - 5000) for n in range(1000)))
    go(page, service, "events")
    expect(page.locator(".total")).to_have_text("the newest 1000")
    one = made(http)
    expect(rows(page).first.get_by_role("link")).to_have_attribute("href", f"#/sandbox/{one}")
    assert page.locator("main tbody tr").count() == 1000


def test_texts_of_events_are_text(page: Page, service: Service) -> None:
    fields = ("event", "time", "sandbox", "template", "tenant", "parent", "space", "key", "text")
    answer(page, event(1, **{field: HOSTILE for field in fields}))
    go(page, service, "events")
    expect(rows(page)).to_contain_text('<img src=x onerror="alert(1)"><script>')
    expect(rows(page)).to_contain_text("\ufffdgpj.exe\ufffd")
    assert page.locator("main img, main script").count() == 0
    assert page.locator("main tbody a").count() == 0
    assert fits(page)
    page.set_viewport_size({"width": 360, "height": 640})
    assert fits(page)


def test_empty_log_and_refused_list_are_said(page: Page, service: Service) -> None:
    answers: list[dict[str, Any]] = [{"status": 200, "body": ""}]
    page.route(LOG, lambda route: route.fulfill(**answers[-1]))
    go(page, service, "events")
    expect(page.get_by_role("heading", name="No events")).to_be_visible()
    refusal = {"error": "too many requests of this key", "code": "rate_limited"}
    answers.append({"status": 429, "json": refusal})
    page.reload()
    expect(page.get_by_role("alert")).to_have_text(refusal["error"])
    answers.append({"status": 200, "body": json.dumps(event(1)) + "\n"})
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("alert")).not_to_be_visible()


def test_events_are_reached_by_keyboard(page: Page, service: Service) -> None:
    answer(page, event(1))
    go(page, service, "events")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Search events").focus()
    page.keyboard.press("Tab")
    expect(rows(page).get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#/sandbox/{ID}$"))
