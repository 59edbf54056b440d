# SPDX-License-Identifier: Apache-2.0
"""The page of one sandbox: code, terminal, files and the other panels."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect

from pages import HOSTILE, button, dialog, drop, fits, go, made, run
from stand_in import Service


@pytest.fixture
def box(http: httpx.Client) -> str:
    return made(http, "a box")


# --- code ---


def test_output_comes_as_it_is_printed(page: Page, service: Service, box: str, tmp_path: Path) -> None:
    go(page, service, f"sandbox/{box}")
    go_on = tmp_path / "go on"
    cell = run(
        page,
        f"import os, time\nprint('begin', end=' ', flush=True)\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\nprint('end')",
    )
    expect(cell.locator(".stdout")).to_have_text("begin ")
    expect(page.locator(".title .state")).to_have_text("running")
    go_on.touch()
    expect(cell.locator(".stdout")).to_have_text("begin end\n")
    expect(cell.locator("footer")).to_contain_text("done")


def test_errors_and_exit_codes_are_shown(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    cell = run(page, "1 / 0")
    expect(cell.locator(".stderr")).to_contain_text("ZeroDivisionError")
    expect(cell.locator("footer")).to_contain_text("exit code 1")
    page.get_by_label("Language").select_option("bash")
    cell = run(page, "echo from bash; exit 7")
    expect(cell.locator(".stdout")).to_have_text("from bash\n")
    expect(cell.locator("footer")).to_contain_text("exit code 7")


def test_results_are_pictures_tables_and_frames_without_scripts(
    page: Page, service: Service, box: str
) -> None:
    go(page, service, f"sandbox/{box}")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><script>alert(1)</script><rect width="40" height="30"/></svg>'
    cell = run(page, f"display({{'image/svg+xml': {svg!r}}}, raw=True)")
    picture = cell.get_by_role("img")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 40
    cell = run(
        page,
        "display({'text/html': '<b id=x>bold</b><script>alert(2)</script><img src=x onerror=alert(3)>'}, raw=True)",
    )
    expect(cell.locator("iframe")).to_have_attribute("sandbox", "")
    expect(cell.frame_locator("iframe").locator("#x")).to_have_text("bold")
    cell = run(
        page,
        "display({'application/vnd.ramet.data+json': {'name': ['<i>a</i>', 'b'], 'n': [1, None]}, 'text/html': 'unused'}, raw=True)",
    )
    expect(cell.locator("tr")).to_have_count(3)
    cells = cell.locator("tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(one => one.textContent))"
    )
    assert cells == [["name", "n"], ["<i>a</i>", "1"], ["b", "–"]]
    cell = run(page, "{'a': [1, 2]}")
    expect(cell.locator(".result")).to_contain_text('"a": [')


def test_hostile_output_is_only_text(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    cell = run(page, f"print({HOSTILE!r}); print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07after')")
    expect(cell.locator(".stdout")).to_contain_text("<img src=x")
    expect(cell.locator(".stdout")).to_contain_text("red after")
    assert cell.locator("img, script").count() == 0
    assert "\u202e" not in str(cell.locator(".stdout").text_content()) and fits(page)


def test_much_output_is_cut_at_its_begin(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    cell = run(page, "for i in range(400): print(str(i) * 2000, flush=True)\nprint('the last line')")
    expect(cell.locator("footer")).to_contain_text("done")
    expect(cell.locator(".stdout").last).to_contain_text("the last line")
    assert len(str(cell.locator(".out").text_content())) <= 1 << 20


def test_calls_of_others_are_followed(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    http.post(f"/v1/sandboxes/{box}/exec", json={"code": "print('before')"})
    go(page, service, f"sandbox/{box}")
    expect(page.locator(".cell")).to_contain_text("before")
    expect(run(page, "print('own')").locator(".stdout")).to_have_text("own\n")
    http.post(f"/v1/sandboxes/{box}/exec", json={"code": "print('one')\nprint('two')"})
    expect(page.locator(".cell").last).to_contain_text("two")
    assert page.locator(".cell .stdout").all_text_contents() == ["before", "own\n", "one\ntwo"]


def test_a_call_is_interrupted(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    cell = run(page, "import time\nprint('sleeps', flush=True)\ntime.sleep(1000)")
    expect(cell).to_contain_text("sleeps")
    button(page, "Interrupt").click()
    expect(cell.locator("footer")).to_contain_text("exit code 130")


def test_typed_code_survives_other_pages_and_a_reload(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    area = page.locator(".prompt textarea")
    area.fill("half a thou")
    go(page, service, "")
    expect(page.get_by_role("treegrid")).to_be_visible()
    go(page, service, f"sandbox/{box}")
    expect(area).to_have_value("half a thou")
    page.reload()
    expect(area).to_have_value("half a thou")


# --- terminal ---


def test_a_terminal_takes_keys_and_knows_its_size(page: Page, start: Callable[..., Service]) -> None:
    service = start()
    with service.client() as http:
        box = made(http)
    go(page, service, f"sandbox/{box}/terminal")
    term = page.locator("[data-term]")
    expect(term.locator("textarea")).to_be_focused()
    page.keyboard.type("echo $((6*7)) $(stty size)")
    page.keyboard.press("Enter")
    expect(term).to_contain_text(re.compile(r"42 \d+ \d{3}"))
    page.set_viewport_size({"width": 700, "height": 500})
    page.keyboard.type(
        "until [ $(stty size | cut -d' ' -f2) -lt 100 ]; do sleep 0.1; done; echo narrow$((1))\n"
    )
    expect(term).to_contain_text("narrow1")
    page.keyboard.type("read -p in$((4))? x; echo got=$x\n")
    expect(term).to_contain_text("in4?")
    page.keyboard.type("héllo")
    page.keyboard.press("Enter")
    expect(term).to_contain_text("got=héllo")
    # Reads the byte: whether the signal ends a program depends on who started these tests.
    page.keyboard.type("stty -isig -icanon -echo; echo in$((5)); head -c1 | od -An -tu1; stty sane\n")
    expect(term).to_contain_text("in5")
    page.keyboard.press("Control+c")
    expect(term.locator(".line", has_text=re.compile(r"^ +3$"))).to_have_count(1)
    # It belongs to the sandbox: it is found again, with what it showed.
    go(page, service, "")
    expect(page.get_by_role("treegrid")).to_be_visible()
    go(page, service, f"sandbox/{box}/terminal")
    expect(page.locator("[data-term]")).to_contain_text("narrow1")
    with service.client() as http:
        assert len(http.get(f"/v1/sandboxes/{box}/pty").json()) == 1
    page.keyboard.press("Shift+Escape")
    expect(button(page, "New terminal")).to_be_focused()
    button(page, "New terminal").click()
    expect(page.locator("[data-term] textarea")).to_be_focused()
    expect(page.get_by_label("Terminal", exact=True).locator("option")).to_have_count(2)
    page.keyboard.type("exit\n")
    expect(page.get_by_text("The program has ended with 0.")).to_be_visible()


SCREENS = [
    ("one\r\ntwo", ["one", "two"]),
    ("abc\x1b[2DX", ["aXc"]),
    ("\x1b[3;5Hx", ["", "", "    x"]),
    ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]),
    ("abc\x1b[2J\x1b[Hd", ["d"]),
    ("abcdef\x1b[3D\x1b[K", ["abc"]),
    ("abcdef\r\x1b[2P\x1b[1@", [" cdef"]),
    ("1\r\n2\r\n3\x1b[1;2r\x1b[2;1H\nx", ["2", "x", "3"]),
    ("1\r\n2\r\n3\x1b[2;1H\x1b[Mx", ["1", "x"]),
    ("main\x1b[?1049hother\x1b[?1049l!", ["main!"]),
    ("abcdefghijkl", ["abcdefghij", "kl"]),
    ("\x1b[?7labcdefghijkl", ["abcdefghil"]),
    ("\x1b(0lqk\x1b(B q", ["┌─┐ q"]),
    ("e\u0301漢x", ["e\u0301漢x"]),
    ("a\x1b]0;a title\x07b\x1b]8;;http://x\x1b\\c\x1bPdata\x1b\\d", ["abcd"]),
    ("a\u202eb\x9bc\x00d", ["abcd"]),
    ("\x1b[999999999999C\x1b[99999;99999Hx\x1b[1;1H\x1b[;;;;;;;;;m", ["", "", "", "         x"]),
    ("\x1b[99999Sx\x1b[99999Ty\x1b[99999Lz\x1b[99999@\x1b[99999P\x1b[99999M", [""]),
    ("\x1b[38;2;1;2", [""]),
]


def test_the_screen_obeys_sequences(page: Page, service: Service) -> None:
    go(page, service)
    shown = page.evaluate(
        """async (texts) => {
             const { Screen } = await import("/ui/vt.js");
             return texts.map((text) => {
               const screen = new Screen(10, 4);
               screen.write(text);
               const lines = screen.lines.map((line) => line.text.join("").trimEnd());
               while (lines.length > 1 && !lines.at(-1)) lines.pop();
               return lines;
             });
           }""",
        [text for text, _ in SCREENS],
    )
    assert shown == [lines for _, lines in SCREENS]


def test_a_screen_keeps_its_size_whatever_it_is_given(page: Page, service: Service) -> None:
    go(page, service)
    # A simple generator of numbers, so that a failure can be repeated.
    assert (
        page.evaluate(
            """async () => {
             const { Screen, runs } = await import("/ui/vt.js");
             const parts = ["\\x1b[", "\\x1b", ";", "?", "1", "25", "9999", "m", "H", "r", "L", "M", "P", "@", "J", "K", "S", "T", "1049h", "1049l", "漢", "\\u0301", "x", "\\r\\n", "\\t", "\\b", "c", "D", "8", "7"];
             let seed = 1;
             const next = (n) => (seed = (seed * 48271) % 2147483647) % n;
             const screen = new Screen(10, 4);
             for (let i = 0; i < 200000; i++) {
               if (next(500) === 0) screen.resize(2 + next(20), 2 + next(8));
               screen.write(parts[next(parts.length)]);
               if (screen.lines.length !== screen.rows) return `rows at ${i}`;
               const line = screen.lines[Math.min(screen.y, screen.rows - 1)];
               if (screen.y < 0 || screen.y >= screen.rows || line.text.length !== screen.cols || line.attrs.length !== screen.cols) return `line at ${i}: ${screen.y}, ${line.text.length}`;
               if (i % 100 === 0) screen.lines.forEach((one) => runs(one, screen.x));
               if (screen.past.length > 4100) return `past at ${i}`;
             }
             return "";
           }"""
        )
        == ""
    )


# --- files ---


@pytest.fixture
def folder(page: Page, service: Service, box: str, tmp_path: Path) -> Path:
    """A folder of the sandbox, whose files the page shows."""
    page.add_init_script(f"sessionStorage.setItem('draft folder {box}', {json.dumps(str(tmp_path))})")
    (tmp_path / "notes.txt").write_text("a note\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/deep.bin").write_bytes(b"\0\xff")
    go(page, service, f"sandbox/{box}/files")
    expect(page.get_by_role("row", name="notes.txt")).to_be_visible()
    return tmp_path


def test_folders_are_browsed(page: Page, folder: Path) -> None:
    page.get_by_role("button", name="Open folder inner").click()
    expect(page.get_by_role("row", name="deep.bin")).to_contain_text("2 B")
    page.get_by_role("button", name="Open deep.bin").click()
    expect(page.get_by_text("It is not a text in UTF-8.")).to_be_visible()
    button(page, "Back").click()
    page.locator(".crumbs").get_by_role("button", name=folder.name).click()
    expect(page.get_by_role("row", name="notes.txt")).to_be_visible()


def test_a_text_is_edited(page: Page, folder: Path) -> None:
    page.get_by_role("button", name="Open notes.txt").click()
    area = page.get_by_label("Content")
    expect(area).to_have_value("a note\n")
    area.fill("another note\n")
    page.reload()
    page.get_by_role("button", name="Open notes.txt").click()
    expect(area).to_have_value("another note\n")
    area.press("Control+s")
    expect(page.get_by_text("Saved", exact=True)).to_be_visible()
    assert (folder / "notes.txt").read_text() == "another note\n"
    area.fill("third\n")
    (folder / "notes.txt").write_text("meanwhile")
    button(page, "Save").click()
    expect(dialog(page)).to_contain_text("newer version")
    button(dialog(page), "Cancel").click()
    assert (folder / "notes.txt").read_text() == "meanwhile"
    expect(area).to_have_value("third\n")


def test_dropped_files_are_uploaded(page: Page, folder: Path) -> None:
    drop(page, dict.fromkeys(["a b.bin", "<b>ü.txt"], b"dropped \0 bytes"))
    assert (folder / "a b.bin").read_bytes() == (folder / "<b>ü.txt").read_bytes() == b"dropped \0 bytes"


def test_files_are_chosen_downloaded_and_deleted(page: Page, folder: Path) -> None:
    page.locator("input[type=file]").set_input_files(
        {"name": "chosen", "mimeType": "x/y", "buffer": b"1" * 100000}
    )
    with page.expect_download() as download:
        button(page.get_by_role("row", name="chosen"), "Download").click()
    assert Path(download.value.path()).read_bytes() == b"1" * 100000
    button(page.get_by_role("row", name="inner"), "Delete …").click()
    button(dialog(page), "Delete").click()
    expect(page.get_by_role("row", name="inner")).to_have_count(0)
    assert not (folder / "inner").exists()
    button(page, "New folder …").click()
    dialog(page).get_by_label("Name").fill("made here")
    button(dialog(page), "Create").click()
    expect(page.get_by_role("row", name="made here")).to_be_visible()
    assert (folder / "made here").is_dir()
    button(page, "New file …").click()
    dialog(page).get_by_label("Name").fill("chosen")
    button(dialog(page), "Create").click()
    expect(dialog(page).get_by_role("alert")).to_have_text("There is a file of this name already.")


def test_hostile_names_of_files(page: Page, folder: Path) -> None:
    names = [
        b"bad \xff bytes",
        b"<img src=x onerror=alert(1)>",
        "\u202egpj.exe".encode(),
        b"line\nbreak",
        b"W" * 255,
        b"50%2Fquery?&#",
    ]
    for name in names:
        Path(bytes(folder).decode() + "/" + name.decode(errors="surrogateescape")).write_text("found")
    button(page, "Refresh").click()
    expect(page.get_by_role("row")).to_have_count(len(names) + 3)
    assert page.locator("main img").count() == 0 and "\u202e" not in page.inner_text("main") and fits(page)
    for shown in ("bad \ufffd bytes", "50%2Fquery?&#", "line\ufffdbreak"):
        page.get_by_role("button", name=f"Open {shown}").click()
        expect(page.get_by_label("Content")).to_have_value("found")
        button(page, "Back").click()


def test_an_error_of_a_file_is_shown(page: Page, folder: Path) -> None:
    (folder / "notes.txt").unlink()
    page.get_by_role("button", name="Open notes.txt").click()
    expect(page.get_by_role("alert").filter(has_text="notes.txt")).to_be_visible()


# --- the other panels ---


def test_processes(page: Page, start: Callable[..., Service]) -> None:
    service = start()
    with service.client() as http:
        box = made(http)
    go(page, service, f"sandbox/{box}/processes")
    expect(page.get_by_role("heading", name="No processes")).to_be_visible()
    page.get_by_label("Command").fill("echo started; exec sleep 1000")
    button(page, "Start").click()
    expect(page.get_by_role("log")).to_have_text("started\n")
    line = page.get_by_role("row", name="sleep 1000")
    expect(line).to_contain_text("running")
    button(line, "SIGTERM").click()
    expect(line).to_contain_text("ended with SIGTERM")
    expect(page.locator(".cell footer")).to_contain_text("ended with SIGTERM")


def test_a_button_of_a_list_keeps_the_focus(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    http.post(f"/v1/sandboxes/{box}/ports/8000", json={})
    go(page, service, f"sandbox/{box}/ports")
    stop = button(page.get_by_role("row", name="8000"), "Stop")
    stop.focus()
    for _ in range(2):  # the second list was asked for after the first one was shown
        page.wait_for_event("requestfinished", lambda request: str(request.url).endswith("/ports"))
    expect(stop).to_be_focused()


def test_contexts(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    go(page, service, f"sandbox/{box}/contexts")
    page.get_by_label("Language").select_option("bash")
    button(page, "Start").click()
    line = page.get_by_role("row", name="bash")
    expect(line).to_contain_text("ready")
    (context,) = http.get(f"/v1/sandboxes/{box}/contexts").json()
    go(page, service, f"sandbox/{box}/code")
    page.get_by_label("Language").select_option(context["id"])
    run(page, "x=5")
    expect(run(page, "echo $x").locator(".stdout")).to_have_text("5\n")
    go(page, service, f"sandbox/{box}/contexts")
    button(line, "End …").click()
    button(dialog(page), "End").click()
    expect(page.get_by_role("heading", name="No further contexts")).to_be_visible()


def test_ports(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    go(page, service, f"sandbox/{box}/ports")
    page.get_by_label("Port", exact=True).fill("8000")
    button(page, "Share").click()
    line = page.get_by_role("row", name="8000")
    expect(line).to_contain_text("who has the link")
    (share,) = http.get(f"/v1/sandboxes/{box}/ports").json()
    link = line.get_by_role("link", name="Open")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(link).to_have_attribute("href", share["url"])
    button(line, "Make public …").click()
    button(dialog(page), "Make public").click()
    expect(line).to_contain_text("everybody")
    button(line, "Stop").click()
    expect(page.get_by_role("heading", name="No shared ports")).to_be_visible()


def test_metrics(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}/metrics")
    expect(page.locator(".chart")).to_have_count(5)
    expect(page.locator(".chart", has_text="Memory")).to_contain_text("MiB")


def test_settings(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    go(page, service, f"sandbox/{box}/settings")
    expect(page.locator("dl")).to_contain_text("default")
    page.get_by_label("Metadata (JSON)").fill("{")
    button(page, "Save").click()
    expect(page.locator("form").get_by_role("alert")).to_contain_text("not JSON")
    page.get_by_label("Metadata (JSON)").fill('{"name": "renamed"}')
    page.get_by_label("Lifetime from now (s)").fill("77")
    button(page, "Save").click()
    expect(page.get_by_role("heading", name="renamed")).to_be_visible()
    assert http.get(f"/v1/sandboxes/{box}").json()["metadata"] == {"name": "renamed"}
    button(page, "Close the network …").click()
    button(dialog(page), "Close it").click()
    expect(page.locator("dl")).to_contain_text("closed")
    assert http.get(f"/v1/sandboxes/{box}").json()["egress"] is False


def test_lines_to_copy_are_for_this_sandbox(page: Page, service: Service, box: str) -> None:
    go(page, service, f"sandbox/{box}/use")
    for label in ("Python", "Command line", "curl"):
        button(page, f"Copy: {label}").click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert box in copied and service.base in copied


def test_a_sandbox_that_ends_is_said(page: Page, service: Service, http: httpx.Client, box: str) -> None:
    go(page, service, f"sandbox/{box}")
    page.locator(".prompt textarea").fill("typed before")
    http.post(f"/v1/sandboxes/{box}/freeze")
    expect(page.get_by_role("alert").filter(has_text="spc_")).to_be_visible()
    expect(page.locator(".title .state")).to_have_text("ended")
    expect(page.locator(".prompt textarea")).to_have_value("typed before")
