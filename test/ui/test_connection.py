# SPDX-License-Identifier: Apache-2.0
"""Keys, a restart of the service and a lost network under an open page: said, resumed, nothing typed is lost."""

from __future__ import annotations

import re
from typing import Callable

import httpx
from playwright.sync_api import BrowserContext, Page, expect

from pages import UI, button, dialog, go, made, row
from stand_in import Service


def restart(service: Service) -> None:
    """Starts the service again on the same port."""
    port = service.port
    service.start(f"listen_port={port}", f"ui_dir={UI}")
    assert service.port == port


def test_a_restart_of_the_service_is_said_and_resumed(page: Page, start: Callable[..., Service]) -> None:
    service = start()
    with service.client() as http:
        box = made(http, "a box")
    go(page, service, f"sandbox/{box}")
    area = page.locator(".prompt textarea")
    area.fill("print('typed before')")
    service.server.terminate()
    assert service.server.wait(60) == 0
    expect(page.locator("#banner")).to_contain_text("Trying again; nothing you typed is lost.")
    button(page, "Run").click()
    expect(page.locator(".cell").last).to_contain_text("No answer from the service")
    expect(area).to_have_value("print('typed before')")
    restart(service)
    expect(page.locator("#banner")).to_be_empty()
    expect(page.get_by_text("Connected again.")).to_be_visible()
    with service.client() as http:
        new = made(http, "after the restart")
    go(page, service, f"sandbox/{new}")
    expect(page.get_by_role("heading", name="after the restart")).to_be_visible()
    go(page, service, "")
    expect(row(page, new)).to_be_visible()


def test_a_lost_network_is_said_and_what_was_typed_arrives(
    page: Page, context: BrowserContext, start: Callable[..., Service]
) -> None:
    service = start()
    with service.client() as http:
        box = made(http, "a box")
    go(page, service, f"sandbox/{box}/terminal")
    term = page.locator("[data-term]")
    expect(term.locator("textarea")).to_be_focused()
    page.keyboard.type("echo ready$((1))\n")
    expect(term).to_contain_text("ready1")
    context.set_offline(True)
    expect(page.locator("#banner")).to_contain_text("No answer from the service.")
    page.keyboard.type("echo kept$((2))\n")
    context.set_offline(False)
    expect(term).to_contain_text("kept2")
    expect(page.locator("#banner")).to_be_empty()


def test_a_key_is_asked_for_and_kept_in_the_tab_only(
    page: Page, context: BrowserContext, start: Callable[..., Service]
) -> None:
    service = start("operator")
    (key,) = service.keys
    with service.client(headers={"authorization": f"Bearer {key}"}) as http:
        box = made(http, "a box")
    go(page, service)
    expect(dialog(page)).to_contain_text("an API key is required")
    dialog(page).get_by_label("Key").fill(key[:-1] + ("a" if key[-1] != "a" else "b"))
    button(dialog(page), "Use this key").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("not a Ramet API key")
    dialog(page).get_by_label("Key").fill(key)
    button(dialog(page), "Use this key").click()
    expect(row(page, box)).to_be_visible()
    expect(page.locator("#banner")).to_be_empty()
    page.reload()
    expect(row(page, box)).to_be_visible()
    stored = page.evaluate(
        "({local: {...localStorage}, session: {...sessionStorage}, cookie: document.cookie})"
    )
    assert key in stored["session"].values() and not stored["local"] and not stored["cookie"]
    other = context.new_page()
    go(other, service)
    expect(dialog(other)).to_contain_text("an API key is required")


def test_a_revoked_key_is_said_and_replaced(page: Page, start: Callable[..., Service]) -> None:
    service = start("operator", "operator")
    first, second = service.keys
    with service.client(headers={"authorization": f"Bearer {second}"}) as http:
        own = made(http, "of the second key")
    page.add_init_script(f"sessionStorage['ramet-key'] ??= '{first}'")
    with service.client(headers={"authorization": f"Bearer {first}"}) as http:
        box = made(http, "of the first key")
    go(page, service, f"sandbox/{box}")
    page.locator(".prompt textarea").fill("typed before")
    expect(page.get_by_role("heading", name="of the first key")).to_be_visible()
    service.tell("revoke")
    expect(dialog(page)).to_contain_text("the API key was revoked")
    page.keyboard.press("Escape")
    expect(page.locator("#banner")).to_contain_text("the API key was revoked")
    expect(page.locator(".prompt textarea")).to_have_value("typed before")
    button(page, "Enter a key").click()
    dialog(page).get_by_label("Key").fill(second)
    button(dialog(page), "Use this key").click()
    expect(page.locator("#banner")).to_be_empty()
    expect(page.locator(".prompt textarea")).to_have_value("typed before")
    go(page, service, "")
    expect(row(page, own)).to_be_visible()


def test_the_host_page_is_for_operators(page: Page, start: Callable[..., Service]) -> None:
    service = start("pro")
    page.add_init_script(f"sessionStorage['ramet-key'] ??= '{service.keys[0]}'")
    go(page, service, "host")
    expect(page.get_by_role("alert")).to_contain_text(re.compile("tier operator"))


# Timers of the page that are longer than the pauses between refreshes never end: nothing is polled.
NO_POLLING = "{ const set = setTimeout; window.setTimeout = (f, ms) => (ms >= 9000 ? 0 : set(f, ms)); }"


def test_what_others_do_appears_without_polling(page: Page, service: Service, http: httpx.Client) -> None:
    page.add_init_script(NO_POLLING)
    go(page, service)
    expect(page.get_by_role("heading", name="No sandbox yet")).to_be_visible()
    one = made(http, "of another client")
    expect(row(page, one)).to_be_visible()
    http.delete(f"/v1/sandboxes/{one}")
    expect(row(page, one)).to_have_count(0)


def test_lists_are_not_asked_for_while_nothing_happens(
    page: Page, service: Service, http: httpx.Client
) -> None:
    one = made(http)
    go(page, service)
    expect(row(page, one)).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6000)
    assert len([url for url in asked if url.endswith("/v1/sandboxes")]) < 4


def test_stream_continues_after_a_restart_of_the_service(page: Page, start: Callable[..., Service]) -> None:
    service = start()
    page.add_init_script(NO_POLLING)
    with service.client() as http:
        made(http)
    with page.expect_response(re.compile("follow=1")):
        go(page, service)
    with service.client() as http:
        one = made(http)
    expect(row(page, one)).to_be_visible()
    with page.expect_request(re.compile(r"follow=1&since=\d+$")):
        service.server.terminate()
        assert service.server.wait(60) == 0
    restart(service)
    expect(page.locator("#banner")).to_be_empty()
    with service.client() as http:
        new = made(http)
    expect(row(page, new)).to_be_visible()
