# SPDX-License-Identifier: Apache-2.0
"""The page /ui/ in a real Chromium, in front of the real service and agent, over stand-ins of VMs.
test_guests.py alone uses the running service, with real guests.

What happens "in a sandbox" happens on this machine, and all sandboxes of a service share it; so tests
write to folders of their own only.
"""

from __future__ import annotations

import re
from typing import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright

from pages import CHROMIUM, TIMEOUT_MS, UI
from stand_in import Service

# What Chromium reports of each answer 4xx, and of scripts in results, which do not run.
EXPECTED = re.compile("Failed to load resource|Blocked script execution in 'about:srcdoc'")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its own sandbox does not work for root. Nothing else than the page is opened.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Service]]:
    """Starts services with settings, for tests that stop them or use keys."""
    started: list[Service] = []

    def starter(*settings: str) -> Service:
        started.append(Service(tmp_path_factory.mktemp("home"), f"ui_dir={UI}", *settings))
        return started[-1]

    yield starter
    for service in started:
        service.stop()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    started = Service(tmp_path_factory.mktemp("home"), f"ui_dir={UI}", "max_vms=48")
    yield started
    started.stop()


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """A client of `service`, which has no sandboxes and no Spaces when a test begins."""
    with service.client() as client:
        yield client
        service.clear(client)


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(viewport={"width": 1200, "height": 760})
    made.grant_permissions(["clipboard-read", "clipboard-write"])
    made.set_default_timeout(TIMEOUT_MS)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab. Fails the test when a script fails, something breaks the content security policy, or a script
    of a guest opens a dialog."""
    faults: list[str] = []

    def on_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_line(line: ConsoleMessage) -> None:
        if line.type == "error" and not EXPECTED.match(line.text):
            faults.append(line.text)

    tab = context.new_page()
    tab.on("pageerror", lambda error: faults.append(f"script: {error}"))
    tab.on("dialog", on_dialog)
    tab.on("console", on_line)
    yield tab
    assert faults == []
