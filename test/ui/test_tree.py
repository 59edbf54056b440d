# SPDX-License-Identifier: Apache-2.0
"""The first page: trees of forks, what can be done with them, search, and the keyboard."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from pages import HOSTILE, button, dialog, fits, forked, go, made, row, select, small_targets
from stand_in import Service

LEVEL = "aria-level"


def test_an_empty_service_shows_what_to_paste(page: Page, service: Service, http: httpx.Client) -> None:
    go(page, service)
    expect(page.get_by_role("heading", name="No sandbox yet")).to_be_visible()
    button(page, "Copy: curl").click()
    pasted = page.evaluate("navigator.clipboard.readText()")
    assert pasted == f"curl -s -X POST {service.base}/v1/sandboxes -d '{{}}'"
    one = made(http)
    expect(row(page, one)).to_be_visible()
    expect(page.get_by_role("heading", name="No sandbox yet")).to_be_hidden()
    http.delete(f"/v1/sandboxes/{one}")
    expect(page.get_by_role("heading", name="No sandbox yet")).to_be_visible()


def test_a_sandbox_is_created(page: Page, service: Service, http: httpx.Client) -> None:
    go(page, service)
    button(page, "New …").click()
    dialog(page).get_by_label("Name").fill("a new one")
    dialog(page).get_by_label("Memory (MiB)").fill("64")
    dialog(page).evaluate("d => d.querySelector('form').noValidate = true")
    button(dialog(page), "Create").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("ram_mib")
    dialog(page).get_by_label("Memory (MiB)").fill("192")
    button(dialog(page), "Create").click()
    expect(dialog(page)).to_have_count(0)
    expect(page.get_by_role("link", name="a new one")).to_be_visible()
    (one,) = http.get("/v1/sandboxes").json()
    assert (one["ram_mib"], one["metadata"]) == (192, {"name": "a new one"})


def test_children_appear_below_their_parents(page: Page, service: Service, http: httpx.Client) -> None:
    parent, other = made(http, "parent"), made(http, "other")
    go(page, service)
    select(page, parent)
    button(page, "Fork …").click()
    dialog(page).get_by_label("Children").fill("3")
    button(dialog(page), "Fork").click()
    expect(page.locator(f'.row[{LEVEL}="2"]')).to_have_count(3)
    children = http.get(f"/v1/sandboxes/{parent}").json()["children"]
    (grandchild,) = forked(http, children[1], 1)
    expect(row(page, grandchild)).to_have_attribute(LEVEL, "3")
    order = page.locator(".row").evaluate_all(
        "all => all.sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(one => one.dataset.id)"
    )
    assert order == [parent, children[0], children[1], grandchild, children[2], other]
    row(page, children[1]).get_by_role("button", name="Close").click()
    expect(row(page, grandchild)).to_have_count(0)
    expect(row(page, children[1])).to_have_attribute("aria-expanded", "false")


def test_a_fork_that_is_refused_says_why(page: Page, service: Service, http: httpx.Client) -> None:
    one = made(http)
    go(page, service)
    select(page, one)
    button(page, "Fork …").click()
    dialog(page).get_by_label("Children").fill("1000")
    button(dialog(page), "Fork").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("from 1 to 32, not 1000")
    expect(dialog(page).get_by_label("Children")).to_have_value("1000")
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)


def test_a_sandbox_is_frozen_and_resumed(page: Page, service: Service, http: httpx.Client) -> None:
    made(http, "to keep")
    go(page, service)
    page.get_by_role("checkbox", name="Select to keep").check()
    button(page, "Freeze …").click()
    expect(dialog(page)).to_contain_text("connections to its ports")
    button(dialog(page), "Freeze").click()
    frozen = page.locator(".row", has_text="Frozen")
    expect(frozen).to_contain_text("to keep")
    frozen.get_by_role("checkbox").check()
    button(page, "Resume").click()
    expect(page.locator(".row", has_text="Ready")).to_contain_text("to keep")
    expect(frozen).to_have_count(0)


def test_what_is_deleted_is_named_first(page: Page, service: Service, http: httpx.Client) -> None:
    first, second = made(http, "one"), made(http, "two")
    go(page, service)
    select(page, first, second)
    button(page, "Delete …").click()
    expect(dialog(page)).to_contain_text("Delete these 2 sandboxes?")
    expect(dialog(page)).to_contain_text("two")
    button(dialog(page), "Cancel").click()
    assert len(http.get("/v1/sandboxes").json()) == 2
    button(page, "Delete …").click()
    button(dialog(page), "Delete").click()
    expect(row(page, first)).to_have_count(0)
    expect(row(page, second)).to_have_count(0)


# The sandboxes of stand-ins have the same files, so these differences come from here.
DIFFERENCES = {
    "added": ["/root/new.txt"],
    "removed": ["/root/of the parent"],
    "modified": ["/root/both.py", f"/root/{HOSTILE}"],
}
TEXTS = {"a": "one\ntwo\nthree\n", "b": "one\n2\nthree\nfour\n"}


def answer_diffs(page: Page, first: str) -> None:
    def files(route: Route) -> None:
        route.fulfill(
            status=200,
            body=TEXTS["a" if first in route.request.url else "b"],
            content_type="application/octet-stream",
        )

    page.route(re.compile(r"/diff/sbx_"), lambda route: route.fulfill(status=200, json=DIFFERENCES))
    page.route(re.compile(r"/files\?path="), files)


def test_a_merge_says_first_what_will_be_lost(page: Page, service: Service, http: httpx.Client) -> None:
    parent = made(http, "parent")
    (child,) = forked(http, parent, 1)
    answer_diffs(page, parent)
    go(page, service)
    select(page, child, parent)
    button(page, "Merge …").click()
    expect(dialog(page)).to_contain_text("/root/of the parent")
    expect(dialog(page)).to_contain_text("Files that become the child's version: 2")
    expect(dialog(page)).to_contain_text("running call")
    expect(button(dialog(page), "Cancel")).to_be_focused()
    button(dialog(page), "Merge").click()
    expect(row(page, child)).to_have_count(0)
    assert http.get(f"/v1/sandboxes/{child}").json()["code"] == "merged"
    assert http.get(f"/v1/sandboxes/{parent}").is_success


def test_only_relatives_can_be_merged(page: Page, service: Service, http: httpx.Client) -> None:
    first, second = made(http), made(http)
    go(page, service)
    select(page, first, second)
    expect(page.get_by_role("link", name="Diff")).to_be_visible()
    expect(button(page, "Merge …")).to_have_count(0)


def test_two_sandboxes_are_compared(page: Page, service: Service, http: httpx.Client) -> None:
    parent = made(http, "parent")
    (child,) = forked(http, parent, 1)
    answer_diffs(page, parent)
    go(page, service)
    select(page, parent, child)
    page.get_by_role("link", name="Diff").click()
    list_ = page.locator(".changes")
    expect(list_).to_contain_text("Only in the second (1)")
    list_.get_by_role("button", name="both.py").click()
    cells = page.locator(".sides tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert cells == [
        ["1", "one", "1", "one"],
        ["2", "two", "2", "2"],
        ["3", "three", "3", "three"],
        ["", "", "4", "four"],
    ]
    assert fits(page)
    page.reload()
    expect(page.get_by_role("heading", name="parent →")).to_be_visible()
    button(page, "Merge …").click()
    expect(dialog(page)).to_contain_text("Files that only it has: 1")


def test_texts_are_compared_line_by_line(page: Page, service: Service) -> None:
    go(page, service)
    rows = page.evaluate(
        """async (pairs) => {
             const { sides } = await import("/ui/lines.js");
             return pairs.map(([a, b]) => sides(a, b).map((row) => row.skipped ?? (row.same ? "=" : "") + (row.left?.text ?? "") + "|" + (row.right?.text ?? "")));
           }""",
        [
            ["", ""],
            ["a\n", "a\n"],
            ["", "a\nb\n"],
            ["a\nb\nc\n", "b\nc\nd\n"],
            ["\n".join(map(str, range(30))), "\n".join(["x", *map(str, range(30))])],
        ],
    )
    assert rows[0] == [] and rows[1] == [1]
    assert rows[2] == ["|a", "|b"]
    assert rows[3] == ["a|", "=b|b", "=c|c", "|d"]
    assert rows[4] == ["|x", "=0|0", "=1|1", "=2|2", 27]


def test_search_and_filter(page: Page, service: Service, http: httpx.Client) -> None:
    parent = made(http, "parent")
    (child,) = forked(http, parent, 1)
    http.patch(f"/v1/sandboxes/{child}", json={"metadata": {"name": "needle", "run": 7}})
    other = made(http, "other")
    go(page, service)
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(row(page, other)).to_have_count(0)
    expect(row(page, child)).to_be_visible()
    expect(row(page, parent)).to_have_class(re.compile("around"))
    page.get_by_role("searchbox").fill('"run":7')
    expect(row(page, child)).to_be_visible()
    page.get_by_role("combobox", name="State").select_option("frozen")
    expect(page.get_by_role("heading", name="Nothing fits")).to_be_visible()
    button(page, "Show all").click()
    expect(row(page, other)).to_be_visible()


def test_everything_works_by_keyboard(page: Page, service: Service, http: httpx.Client) -> None:
    parent = made(http, "parent")
    children = forked(http, parent, 2)
    go(page, service)
    row(page, parent).focus()
    page.keyboard.press("ArrowDown")
    expect(row(page, children[0])).to_be_focused()
    page.keyboard.press("End")
    expect(row(page, children[1])).to_be_focused()
    page.keyboard.press(" ")
    expect(row(page, children[1])).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowLeft")
    expect(row(page, parent)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(row(page, children[0])).to_have_count(0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(row(page, children[0])).to_be_focused()
    page.keyboard.press("f")
    expect(dialog(page).get_by_label("Children")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(f'.row[{LEVEL}="3"]')).to_have_count(1)
    expect(row(page, children[0])).to_be_focused()
    page.keyboard.press("Delete")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row(page, children[0])).to_have_count(0)
    row(page, parent).focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#/sandbox/{parent}"))


def test_hostile_names_are_only_text(page: Page, service: Service, http: httpx.Client) -> None:
    one = made(http, HOSTILE)
    http.patch(f"/v1/sandboxes/{one}", json={"metadata": {"name": HOSTILE, "note": HOSTILE}})
    for path in ("", f"sandbox/{one}", f"sandbox/{one}/settings"):
        go(page, service, path)
        expect(page.locator("bdi", has_text="<img src=x").first).to_be_visible()
        assert page.locator("main img").count() == 0 and page.locator("main script").count() == 0
        assert "\u202e" not in page.inner_text("h1") and fits(page)
    go(page, service)
    select(page, one)
    button(page, "Delete …").click()
    expect(dialog(page)).to_contain_text("<img src=x")
    assert fits(page)


def many(n: int) -> list[dict[str, Any]]:
    """The list of n sandboxes, in trees of ten."""
    ids = [f"sbx_{i:032x}" for i in range(n)]
    common = {
        "state": "ready",
        "template": "default",
        "vcpus": 2,
        "ram_mib": 1024,
        "rootfs_gb": 4,
        "persistent": False,
        "egress": True,
        "created_at": "2026-01-31T23:59:59.123Z",
        "memory_private_bytes": 1,
        "memory_shared_bytes": 1,
    }
    return [
        {"id": one, "parent": ids[i - i % 10] if i % 10 else None, "metadata": {"name": f"box {i}"}, **common}
        for i, one in enumerate(ids)
    ]


def test_a_thousand_sandboxes_need_few_elements(page: Page, service: Service) -> None:
    boxes = many(1000)
    page.route(
        "**/v1/sandboxes",
        lambda route: route.fulfill(status=200, body=json.dumps(boxes), content_type="application/json"),
    )
    go(page, service)
    expect(page.locator(".total")).to_contain_text("1000 sandboxes")
    assert page.locator(".row").count() < 60
    expect(page.get_by_role("treegrid")).to_have_attribute("aria-rowcount", "1001")
    row(page, boxes[0]["id"]).focus()
    page.keyboard.press("End")
    expect(row(page, boxes[999]["id"])).to_be_focused()
    expect(row(page, boxes[999]["id"])).to_be_in_viewport()
    assert page.locator(".row").count() < 60
    boxes[995] = {**boxes[995], "state": "running"}
    expect(row(page, boxes[995]["id"])).to_contain_text("Running")
    expect(row(page, boxes[999]["id"])).to_be_focused()


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_cut_off_at_the_width_of_a_phone(
    page: Page, service: Service, http: httpx.Client, width: int
) -> None:
    parent = made(http, "parent")
    forked(http, parent, 2)
    page.set_viewport_size({"width": width, "height": 640})
    go(page, service)
    select(page, parent)
    assert fits(page)
    assert width > 640 or small_targets(page) == []
    for tab in ("code", "terminal", "files", "processes", "contexts", "ports", "metrics", "settings", "use"):
        go(page, service, f"sandbox/{parent}/{tab}")
        expect(page.get_by_role("tab", selected=True)).to_be_visible()
        assert fits(page), tab
        assert width > 640 or small_targets(page) == [], tab
