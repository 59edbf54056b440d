# SPDX-License-Identifier: Apache-2.0
"""The page /ui/ in front of the running service with real guests (RAMET_HOST).

Stand-ins of VMs share one agent, so these tests have what needs guests of one's own: their memory after a
fork or a crash of the service, their terminals, packages and servers, their end.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from pages import RUNNING, button, dialog, drop, forked, go, made, row, run, select

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("none_stay")]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(base_url=RUNNING.base, timeout=300, trust_env=False) as client:
        yield client


@pytest.fixture
def box(http: httpx.Client) -> str:
    return made(http, "a box")


def printed(http: httpx.Client, one: str, code: str) -> str:
    """Runs code as another client; returns what it prints."""
    answer = http.post(f"/v1/sandboxes/{one}/exec", json={"code": code, "output": "chunks"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1]["data"] == 0, answer.text
    return "".join(event["data"] for event in events if event["type"] == "stdout")


def prints(page: Page, code: str, text: str) -> None:
    """Runs code on the page and expects what its cell shows."""
    expect(run(page, code).locator(".stdout")).to_have_text(text)


def in_terminal(page: Page, line: str, text: str | re.Pattern[str]) -> None:
    """Types a line into the terminal and expects what it shows."""
    expect(page.locator("[data-term] textarea")).to_be_focused()
    page.keyboard.type(line + "\n")
    expect(page.locator("[data-term]")).to_contain_text(text)


def test_children_have_the_memory_files_and_terminals_of_their_parent(page: Page) -> None:
    go(page, RUNNING)
    button(page, "New …").click()
    dialog(page).get_by_label("Name").fill("parent")
    button(dialog(page), "Create").click()
    page.get_by_role("link", name="parent").click()
    prints(page, "numbers = list(range(1000)); print(open('/root/kept', 'w').write('kept'))", "4\n")
    page.get_by_role("tab", name="Terminal").click()
    in_terminal(page, "word=typed; echo of$((1))", "of1")
    page.get_by_role("link", name="Tree", exact=True).click()
    page.get_by_role("checkbox", name="Select parent").check()
    button(page, "Fork …").click()
    dialog(page).get_by_label("Children").fill("2")
    button(dialog(page), "Fork").click()
    children = page.locator(".row[aria-level='2']")
    expect(children).to_have_count(2)
    expect(children.first.locator(".own")).to_contain_text("iB")
    for i in range(2):
        children.nth(i).get_by_role("link").click()
        prints(page, "print(sum(numbers), open('/root/kept').read())", "499500 kept\n")
        page.get_by_role("tab", name="Terminal").click()
        in_terminal(page, f"echo $word$(({i}))", f"typed{i}")
        page.get_by_role("link", name="Tree", exact=True).click()


def test_a_child_is_compared_and_merged(page: Page, http: httpx.Client, box: str) -> None:
    printed(http, box, "open('/root/both.py', 'w').write('one\\ntwo\\nthree\\n')")
    (child,) = forked(http, box, 1)
    printed(http, box, "open('/root/of-the-parent', 'w').close()")
    printed(http, child, "x = 'of the child'; open('/root/new', 'w').close()")
    printed(http, child, "open('/root/both.py', 'w').write('one\\n2\\nthree\\nfour\\n')")
    go(page, RUNNING)
    select(page, box, child)
    page.get_by_role("link", name="Diff").click()
    found = page.locator(".changes")
    for path in ("+/root/new", "−/root/of-the-parent", "~/root/both.py"):
        expect(found.get_by_role("button").filter(has_text=path)).to_have_count(1)
    found.get_by_role("button", name="both.py").click()
    cells = page.locator(".sides tbody td:nth-child(even)")
    expect(cells).to_have_text(["one", "one", "two", "2", "three", "three", "", "four"])
    button(page, "Merge …").click()
    expect(dialog(page)).to_contain_text("/root/of-the-parent")
    button(dialog(page), "Merge").click()
    expect(row(page, child)).to_have_count(0)
    row(page, box).get_by_role("link").click()
    prints(page, "print(x, open('/root/both.py').read().split())", "of the child ['one', '2', 'three', 'four']\n")


def test_figures_and_frames_are_shown(page: Page, box: str) -> None:
    go(page, RUNNING, f"sandbox/{box}")
    picture = run(page, "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()").get_by_role("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") > 300
    frame = run(page, "import pandas\npandas.DataFrame({'name': ['a', 'b'], 'n': [1, 2]})").locator("tr")
    expect(frame).to_contain_text(["name", "a", "b"])


def test_a_terminal_is_typed_into_and_resized(page: Page, box: str) -> None:
    go(page, RUNNING, f"sandbox/{box}/terminal")
    in_terminal(page, "echo $((6*7)) $(stty size)", re.compile(r"42 \d+ \d{3}"))
    page.set_viewport_size({"width": 700, "height": 500})
    in_terminal(
        page,
        "until [ $(stty size | cut -d' ' -f2) -lt 100 ]; do sleep 0.1; done; echo narrow$((1))",
        "narrow1",
    )
    in_terminal(page, "echo begins$((2)); sleep 100000", "begins2")
    page.keyboard.press("Control+c")
    in_terminal(page, "echo code$?", "code130")
    in_terminal(page, "exit", re.compile("exit"))
    expect(page.get_by_text("The program has ended with 0.")).to_be_visible()


def test_files_are_dropped_edited_and_downloaded(page: Page, http: httpx.Client, box: str) -> None:
    go(page, RUNNING, f"sandbox/{box}/files")
    drop(page, {"a b.bin": b"\0\xff", "notes.txt": b"a note\n"})
    page.get_by_role("button", name="Open notes.txt").click()
    expect(page.get_by_label("Content")).to_have_value("a note\n")
    page.get_by_label("Content").fill("another note\n")
    button(page, "Save").click()
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    button(page, "Back").click()
    with page.expect_download() as download:
        button(page.get_by_role("row", name="a b.bin"), "Download").click()
    assert Path(download.value.path()).read_bytes() == b"\0\xff"
    read = "print(open('/root/notes.txt').read() + open('/root/a b.bin', 'rb').read().hex())"
    assert printed(http, box, read) == "another note\n00ff\n"


def test_a_frozen_sandbox_goes_on_where_it_was(page: Page, http: httpx.Client, box: str) -> None:
    printed(http, box, "x = 5")
    go(page, RUNNING, f"sandbox/{box}")
    button(page, "Freeze …").click()
    button(dialog(page), "Freeze").click()
    expect(page.get_by_role("alert").filter(has_text="spc_")).to_be_visible()
    page.get_by_role("link", name="Tree", exact=True).click()
    frozen = page.locator(".row", has_text="Frozen").filter(has_text="a box")
    frozen.get_by_role("checkbox").check()
    button(page, "Resume").click()
    expect(frozen).to_have_count(0)
    page.get_by_role("link", name="a box").click()
    prints(page, "print(x)", "5\n")


def test_an_open_page_goes_on_after_a_rollback(page: Page, http: httpx.Client, box: str) -> None:
    go(page, RUNNING, f"sandbox/{box}")
    prints(page, "x = 1; print(x)", "1\n")
    checkpoint = http.post(f"/v1/sandboxes/{box}/checkpoints", json={}).json()["id"]
    prints(page, "x = 2; print(x)", "2\n")
    answer = http.post(f"/v1/sandboxes/{box}/rollback", json={"checkpoint": checkpoint})
    assert answer.is_success, answer.text
    prints(page, "print('x is', x)", "x is 1\n")
    printed(http, box, "print('of another client')")
    expect(page.locator(".cell").last).to_contain_text("of another client")


def test_a_call_goes_on_when_the_service_crashes(
    page: Page, http: httpx.Client, box: str, crash_service: Callable[[], None]
) -> None:
    go(page, RUNNING, f"sandbox/{box}")
    waits = "while not os.path.exists('/root/go'): time.sleep(0.1)"
    cell = run(page, f"import os, time\nx = 5\nprint('begin', flush=True)\n{waits}\nprint('end')")
    expect(cell.locator(".stdout")).to_have_text("begin\n")
    page.locator(".prompt textarea").fill("print(x)")
    crash_service()
    expect(page.get_by_text("Connected again.")).to_be_visible()
    expect(page.locator("#banner")).to_be_empty()
    while http.get("/v1/healthz").text != "ok":  # it answers some requests before it is ready
        time.sleep(0.1)
    assert http.put(f"/v1/sandboxes/{box}/files?path=/root/go", content=b"").is_success
    expect(cell.locator(".stdout")).to_contain_text("end")
    expect(cell.locator("footer")).to_contain_text("done")
    expect(page.locator(".prompt textarea")).to_have_value("print(x)")
    button(page, "Run").click()
    expect(page.locator(".cell").last.locator(".stdout")).to_have_text("5\n")


def test_a_server_in_the_guest_is_opened(
    page: Page, context: BrowserContext, http: httpx.Client, box: str
) -> None:
    printed(http, box, "open('/root/index.html', 'w').write('<h1>served by the guest</h1>')")
    go(page, RUNNING, f"sandbox/{box}/processes")
    page.get_by_label("Command").fill("exec python3 -u -m http.server 8000 --directory /root")
    button(page, "Start").click()
    expect(page.get_by_role("log")).to_contain_text("Serving HTTP")
    page.get_by_role("tab", name="Ports").click()
    page.get_by_label("Port", exact=True).fill("8000")
    button(page, "Share").click()
    with context.expect_page() as opened:
        page.get_by_role("row", name="8000").get_by_role("link", name="Open").click()
    expect(opened.value.get_by_role("heading", name="served by the guest")).to_be_visible()
    opened.value.close()
    page.get_by_role("tab", name="Processes").click()
    button(page.get_by_role("row", name="http.server"), "SIGTERM").click()
    expect(page.get_by_role("row", name="http.server")).to_contain_text("ended with SIGTERM")


def test_a_guest_that_ends_is_said(page: Page, box: str) -> None:
    go(page, RUNNING, f"sandbox/{box}")
    run(page, "import ctypes\nctypes.CDLL(None).reboot(0x4321FEDC)  # switches the machine off")
    expect(page.locator(".title .state")).to_have_text("ended")
    expect(page.locator("p[role=alert]").first).to_contain_text(box)
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("row", name="sandbox.died").first).to_contain_text(box[:8])


def test_the_other_pages_show_this_host(page: Page, box: str) -> None:
    go(page, RUNNING, "templates")
    expect(page.get_by_role("row", name="default ready")).to_be_visible()
    go(page, RUNNING, "host")
    expect(page.get_by_role("row", name="warden")).to_contain_text("ok")
    page.get_by_role("searchbox").fill("ramet_creates_total")
    expect(page.get_by_role("row", name="ramet_creates_total")).to_be_visible()
    panels = {"metrics": "MiB", "settings": "default", "use": box, "contexts": "No further contexts"}
    for panel, text in panels.items():
        go(page, RUNNING, f"sandbox/{box}/{panel}")
        expect(page.locator(".panel")).to_contain_text(text)
