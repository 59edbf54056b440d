# SPDX-License-Identifier: Apache-2.0
"""The page of the API keys: who may see it, and each of its actions."""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from pages import HOSTILE, button, dialog, fits, go, row
from stand_in import Service

Key = dict[str, Any]
TEXT = re.compile(r"^rmt_[0-9A-Za-z]{38}$")


@pytest.fixture
def keyed(start: Callable[..., Service]) -> Service:
    """A service with keys of a tenant and an admin."""
    return start("key=pro", "key=admin")


@pytest.fixture
def admin(keyed: Service) -> Iterator[httpx.Client]:
    with keyed.client(headers={"authorization": f"Bearer {keyed.keys[1]}"}) as http:
        yield http


@pytest.fixture
def keys(page: Page, keyed: Service) -> Page:
    """The page, in a tab with the admin's key."""
    page.add_init_script(f"sessionStorage['ramet-key'] ??= '{keyed.keys[1]}'")
    go(page, keyed, "keys")
    expect(rows(page)).to_have_count(2)
    return page


def rows(page: Page) -> Locator:
    return page.locator("main tbody tr")


def made(admin: httpx.Client, **fields: Any) -> Key:
    answer = admin.post("/v1/keys", json={"name": "a key", "tier": "pro", **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def status_of(service: Service, text: str) -> int:
    return httpx.get(f"{service.base}/v1/sandboxes", headers={"authorization": f"Bearer {text}"}).status_code


def kept(page: Page) -> str:
    """Copies the key that is shown, closes the dialog, and checks that the key is gone from the page."""
    expect(dialog(page)).to_contain_text("the only time it is shown")
    page.keyboard.press("Escape")  # too easily pressed
    expect(dialog(page)).to_be_visible()
    text = dialog(page).locator("pre").inner_text()
    button(dialog(page), "Copy: " + (dialog(page).locator("figcaption").inner_text().splitlines()[0])).click()
    assert page.evaluate("navigator.clipboard.readText()") == text
    button(dialog(page), "I have kept it").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert text not in page.content()
    assert TEXT.match(text)
    return text


def test_key_is_made_and_shown_once(keys: Page, keyed: Service, admin: httpx.Client) -> None:
    button(keys, "New key …").click()
    dialog(keys).get_by_label("Name").fill("build farm")
    dialog(keys).get_by_label("Tier").select_option("scale")
    button(dialog(keys), "Make the key").click()
    text = kept(keys)
    assert status_of(keyed, text) == 200
    new = admin.get("/v1/keys").json()[-1]
    expect(row(keys, new["id"])).to_contain_text("build farm")
    expect(row(keys, new["id"])).to_contain_text("scale")
    assert keys.evaluate("JSON.stringify({...sessionStorage})").count("rmt_") == 1  # the admin's own
    button(keys, "New key …").click()
    dialog(keys).get_by_label("Name").fill("another")
    dialog(keys).locator("[name=tenant]").select_option(new["tenant"])
    button(dialog(keys), "Make the key").click()
    kept(keys)
    assert admin.get("/v1/keys").json()[-1]["tenant"] == new["tenant"]


def test_refusal_keeps_what_was_typed(keys: Page) -> None:
    button(keys, "New key …").click()
    dialog(keys).get_by_label("Name").fill("ü" * 40)  # more bytes than a name may have
    button(dialog(keys), "Make the key").click()
    expect(dialog(keys).get_by_role("alert")).to_contain_text("name")
    expect(dialog(keys).get_by_label("Name")).to_have_value("ü" * 40)


def test_key_is_rotated_and_ends(keys: Page, keyed: Service, admin: httpx.Client) -> None:
    old = made(admin, name="job")
    button(row(keys, old["id"]), "Rotate … job").click()
    dialog(keys).get_by_label("The old key stays valid for").select_option("86400")
    button(dialog(keys), "Make a new key").click()
    new = kept(keys)
    expect(row(keys, old["id"])).to_contain_text(re.compile("ends in (23 h|1 d)"))
    assert status_of(keyed, new) == status_of(keyed, old["key"]) == 200
    button(row(keys, old["id"]), "Rotate … job").click()
    dialog(keys).get_by_label("The old key stays valid for").select_option("0")
    button(dialog(keys), "Make a new key").click()
    kept(keys)
    expect(row(keys, old["id"])).to_have_count(0)
    assert status_of(keyed, old["key"]) == 401
    keys.get_by_label("Revoked too").check()
    expect(row(keys, old["id"])).to_contain_text("revoked")


def test_revoke_asks_first(keys: Page, keyed: Service, admin: httpx.Client) -> None:
    key = made(admin, name="laptop")
    button(row(keys, key["id"]), "Revoke … laptop").click()
    expect(dialog(keys)).to_contain_text(key["id"])
    expect(button(dialog(keys), "Cancel")).to_be_focused()
    keys.keyboard.press("Enter")
    expect(dialog(keys)).to_have_count(0)
    assert status_of(keyed, key["key"]) == 200
    button(row(keys, key["id"]), "Revoke … laptop").click()
    button(dialog(keys), "Revoke").click()
    expect(row(keys, key["id"])).to_have_count(0)
    assert status_of(keyed, key["key"]) == 401


def test_tier_is_changed(keys: Page, admin: httpx.Client) -> None:
    key = made(admin, name="laptop")
    button(row(keys, key["id"]), "Tier … laptop").click()
    expect(dialog(keys).get_by_label("Tier")).to_have_value("pro")
    dialog(keys).get_by_label("Tier").select_option("enterprise")
    button(dialog(keys), "Change").click()
    expect(row(keys, key["id"])).to_contain_text("enterprise")
    assert [one["tier"] for one in admin.get("/v1/keys").json()] == ["pro", "admin", "enterprise"]


def test_own_key_can_be_rotated_only(keys: Page, keyed: Service) -> None:
    own = rows(keys).filter(has_text="this tab")
    for name in ("Tier … a test", "Revoke … a test"):
        expect(button(own, name)).to_be_disabled()
    button(own, "Rotate … a test").click()
    expect(dialog(keys).get_by_role("option", name="Ends at once")).to_have_count(0)
    button(dialog(keys), "Make a new key").click()
    expect(dialog(keys)).to_contain_text("This tab uses it from now on")
    text = kept(keys)
    assert keys.evaluate("sessionStorage['ramet-key']") == text
    expect(rows(keys)).to_have_count(3)
    expect(rows(keys).filter(has_text="this tab")).not_to_contain_text("ends in")


def test_changes_of_others_are_shown(keys: Page, admin: httpx.Client) -> None:
    key = made(admin, name="by another admin")
    expect(row(keys, key["id"])).to_contain_text("by another admin")
    admin.delete(f"/v1/keys/{key['id']}")
    expect(row(keys, key["id"])).to_have_count(0)
    expect(keys.locator(".total")).to_have_text("2 of 3")


def test_keys_are_searched_and_read_in_pages(keys: Page, admin: httpx.Client) -> None:
    made(admin, name="needle", tier="free")
    keys.route(  # as if a page held one key
        re.compile("/v1/keys([?]cursor=|$)"),
        lambda route: route.continue_(url=f"{route.request.url}{'&' if '?' in route.request.url else '?'}limit=1"),
    )
    keys.reload()
    expect(rows(keys)).to_have_count(3)
    keys.get_by_label("Search keys").fill("NEEDLE")
    expect(rows(keys)).to_have_count(1)
    keys.get_by_label("Search keys").fill("nothing like this")
    expect(keys.get_by_role("heading", name="Nothing fits")).to_be_visible()
    button(keys, "Show all").click()
    expect(rows(keys)).to_have_count(3)


def test_names_are_text(keys: Page) -> None:
    fields = ("id", "tenant", "name", "tier", "state", "created_at", "ends_at")
    key = {**{field: HOSTILE for field in fields}, "current": False}
    keys.route(re.compile("/v1/keys$"), lambda route: route.fulfill(status=200, json=[key]))
    keys.reload()
    expect(rows(keys)).to_contain_text('<img src=x onerror="alert(1)"><script>')
    expect(rows(keys)).to_contain_text("\ufffdgpj.exe\ufffd")
    assert keys.locator("main img, main script").count() == 0
    assert fits(keys)
    keys.set_viewport_size({"width": 360, "height": 640})
    assert fits(keys)
    keys.get_by_role("button", name="Revoke …").click()
    assert fits(keys)


def test_everything_is_in_sight_on_a_phone(keys: Page) -> None:
    keys.set_viewport_size({"width": 360, "height": 780})
    for one in rows(keys).get_by_role("button").all():
        box = one.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360
    button(keys, "New key …").click()
    for name in ("name", "tier", "tenant"):
        box = dialog(keys).locator(f"[name={name}]").bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 360


def test_page_is_for_admins(page: Page, keyed: Service, service: Service) -> None:
    go(page, service, "keys")  # which has no keys
    expect(page.get_by_role("heading", name="Keys are for admins")).to_be_visible()
    expect(page.get_by_text("rametctl key create --tier admin")).to_be_visible()
    expect(button(page, "New key …")).not_to_be_visible()
    page.add_init_script(f"sessionStorage['ramet-key'] = '{keyed.keys[0]}'")
    go(page, keyed, "keys")
    expect(page.get_by_role("heading", name="Keys are for admins")).to_be_visible()
    expect(page.locator("#banner")).to_be_empty()


def test_revoked_admin_is_told_and_goes_on_with_another_key(keys: Page, admin: httpx.Client) -> None:
    other = made(admin, name="other", tier="admin")
    (own,) = (one["id"] for one in admin.get("/v1/keys").json() if one["current"])
    button(keys, "New key …").click()
    dialog(keys).get_by_label("Name").fill("typed before")
    admin.delete(f"/v1/keys/{own}", headers={"authorization": f"Bearer {other['key']}"})
    asks = keys.get_by_role("dialog", name="API key")
    expect(asks).to_contain_text("the API key was revoked")
    asks.get_by_label("Key").fill(other["key"])
    button(asks, "Use this key").click()
    expect(keys.get_by_role("dialog")).to_have_count(1)
    expect(dialog(keys).get_by_label("Name")).to_have_value("typed before")
    button(dialog(keys), "Make the key").click()
    kept(keys)
    expect(rows(keys).filter(has_text="typed before")).to_have_count(1)


def test_keys_are_managed_by_keyboard(keys: Page, admin: httpx.Client) -> None:
    button(keys, "New key …").focus()
    keys.keyboard.press("Enter")
    keys.keyboard.type("typed")
    keys.keyboard.press("Enter")
    expect(dialog(keys)).to_contain_text("the only time it is shown")
    keys.keyboard.press("Tab")
    while not dialog(keys).get_by_role("button", name="I have kept it").evaluate(
        "one => one === document.activeElement"
    ):
        keys.keyboard.press("Tab")
    keys.keyboard.press("Enter")
    expect(dialog(keys)).to_have_count(0)
    assert admin.get("/v1/keys").json()[-1]["name"] == "typed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(keys: Page, admin: httpx.Client, scheme: str) -> None:
    ending = made(admin, name="ending")
    admin.post(f"/v1/keys/{ending['id']}/rotate", json={"grace_seconds": 3600})
    keys.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    keys.route(  # axe makes a policy of its own, which the page's does not allow
        "**/ui/",
        lambda route: (
            (answer := route.fetch())
            and route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": ""})
        ),
    )
    keys.reload()
    expect(rows(keys)).to_have_count(4)
    for opened in (None, "New key …"):
        if opened:
            button(keys, opened).click()
        found = Axe().run(keys)
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
            for one in found.response["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []
