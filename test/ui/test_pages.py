# SPDX-License-Identifier: Apache-2.0
"""The pages besides tree and sandbox, and what is true of all of them."""

from __future__ import annotations

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from pages import button, dialog, forked, go, made, row
from stand_in import Service


def test_spaces(page: Page, service: Service, http: httpx.Client) -> None:
    go(page, service, "spaces")
    expect(page.get_by_role("heading", name="No Spaces")).to_be_visible()
    spaces = [
        http.post(f"/v1/sandboxes/{made(http, name)}/freeze").json()["space_id"]
        for name in ("first", "second")
    ]
    expect(row(page, spaces[0])).to_contain_text("first")
    button(row(page, spaces[0]), "Resume").click()
    expect(row(page, spaces[0])).to_have_count(0)
    assert [one["metadata"] for one in http.get("/v1/sandboxes").json()] == [{"name": "first"}]
    button(row(page, spaces[1]), "Delete …").click()
    expect(dialog(page)).to_contain_text("cannot be restored")
    button(dialog(page), "Delete").click()
    expect(page.get_by_role("heading", name="No Spaces")).to_be_visible()


def test_templates(page: Page, service: Service) -> None:
    go(page, service, "templates")
    expect(page.get_by_role("row", name="default ready")).to_contain_text("ready")


def test_host(page: Page, service: Service, http: httpx.Client) -> None:
    made(http)
    go(page, service, "host")
    expect(page.get_by_role("row", name="warden")).to_contain_text("ok")
    page.get_by_role("searchbox").fill("ramet_creates_total")
    expect(page.get_by_role("row", name="ramet_creates_total")).to_be_visible()


def test_unknown_pages_and_ids_do_no_harm(page: Page, service: Service, http: httpx.Client) -> None:
    for path in (
        "nothing/here",
        "sandbox/sbx_nonsense",
        "sandbox/%3Cimg%20src=x%3E",
        "diff/a/b",
        "diff",
        "sandbox",
        "sandbox//",
        "%",
    ):
        go(page, service, path)
        page.reload()
        expect(page.get_by_role("link", name="Tree", exact=True)).to_be_visible()
        expect(page.locator("main h1")).to_be_visible()
        assert page.locator("main img").count() == 0


PAGES = [
    "",
    "spaces",
    "templates",
    "events",
    "keys",
    "host",
    "sandbox/ID",
    "sandbox/ID/terminal",
    "sandbox/ID/files",
    "sandbox/ID/processes",
    "sandbox/ID/settings",
    "sandbox/ID/use",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, service: Service, http: httpx.Client, scheme: str) -> None:
    parent = made(http, "parent")
    forked(http, parent, 2)
    http.post(f"/v1/sandboxes/{made(http, 'kept')}/freeze")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    # axe makes a policy of its own, which the page's does not allow.
    page.route(
        "**/ui/",
        lambda route: (
            (answer := route.fetch())
            and route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": ""})
        ),
    )
    for path in PAGES:
        go(page, service, path.replace("ID", parent))
        page.reload()
        expect(page.locator("main h1")).to_be_visible()
        if path == "":
            row(page, parent).get_by_role("checkbox").check()
            expect(page.get_by_role("toolbar")).to_be_visible()
        found = Axe().run(page)
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
            for one in found.response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], path


def test_a_phone_shows_which_page_is_open(page: Page, service: Service) -> None:
    page.set_viewport_size({"width": 390, "height": 760})
    for name in ("Host", "Tree"):
        go(page, service, "" if name == "Tree" else name.lower())
        current = page.locator("nav [aria-current=page]")
        expect(current).to_have_text(name)
        expect(current).to_be_in_viewport(ratio=0.9)
