# SPDX-License-Identifier: Apache-2.0
"""Takes the pictures of docs/ui.md, in Chromium, of the running service (RAMET_HOST).

Usage: pictures.py [FOLDER], with the Python of the integrations; writes to docs/pictures without a folder.
The picture of the page Keys needs a service with keys and is not among them.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from pages import CHROMIUM, RUNNING, TIMEOUT_MS, forked, go, made, row, run, select

WIDE, PHONE = (1100, 600), (390, 700)

MODEL = '''import numpy as np

def features(hours):
    day = 2 * np.pi * hours / 24
    return np.column_stack([np.sin(day), np.cos(day)])

def fit(hours, power):
    return np.linalg.lstsq(features(hours), power, rcond=None)[0]
'''
WEEKLY = MODEL.replace(
    "    return np.column_stack([np.sin(day), np.cos(day)])",
    "    week = day / 7\n    return np.column_stack([f(x) for x in (day, week) for f in (np.sin, np.cos)])",
).replace("fit(hours, power)", "fit(hours, power, ridge=1e-3)")
PLOT = """import numpy as np, pandas as pd, matplotlib.pyplot as plt
hours = np.arange(48)
noise = np.random.default_rng(7).normal(0, 2, 48)
power = pd.Series(60 + 18 * np.sin(hours / 24 * 2 * np.pi - 2) + noise, name="power")
plt.figure(figsize=(7, 2.4)); plt.plot(hours, power); plt.ylabel("MW"); plt.tight_layout()
power.describe().round(1).to_frame().T"""


class Forest:
    """Sandboxes in two trees, and a Space."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.root = made(http, "load data")
        self.write(self.root, "model.py", MODEL)
        names = ("last week again", "regression", "mean of each hour")
        again, self.parent, hour = self.children(self.root, *names)
        daily, self.child = self.children(self.parent, "regression, daily", "regression, weekly")
        self.write(self.child, "model.py", WEEKLY)
        self.write(self.child, "results.csv", "week,error\n46,1.30\n47,1.41\n")
        self.all = [self.root, again, self.parent, hour, daily, self.child, made(http, "web app")]
        frozen = http.post(f"/v1/sandboxes/{made(http, 'review of pull 7')}/freeze").json()
        self.space = frozen["space_id"]

    def children(self, parent: str, *names: str) -> list[str]:
        made = forked(self.http, parent, len(names))
        for one, name in zip(made, names):
            self.http.patch(f"/v1/sandboxes/{one}", json={"metadata": {"name": name}})
        return made

    def write(self, one: str, name: str, text: str) -> None:
        answer = self.http.put(f"/v1/sandboxes/{one}/files?path=/root/{name}", content=text.encode())
        assert answer.is_success, answer.text

    def remove(self) -> None:
        for one in self.all:
            self.http.delete(f"/v1/sandboxes/{one}")
        self.http.delete(f"/v1/spaces/{self.space}")


def tree(page: Page, forest: Forest) -> None:
    go(page, RUNNING)
    select(page, forest.parent, forest.child)
    expect(page.get_by_role("toolbar")).to_be_visible()
    for one in forest.all:
        expect(row(page, one).locator(".own")).to_contain_text("iB")


def plot(page: Page, forest: Forest) -> None:
    go(page, RUNNING, f"sandbox/{forest.root}")
    cell = run(page, PLOT)
    cell.get_by_role("img").evaluate("one => one.decode()")
    expect(cell.locator("footer")).to_contain_text("done")
    expect(page.locator(".title .state")).to_have_text("ready")


def diff(page: Page, forest: Forest) -> None:
    go(page, RUNNING, f"diff/{forest.parent}/{forest.child}")
    page.locator(".changes").get_by_role("button", name="model.py").click()
    expect(page.locator(".sides")).to_contain_text("ridge=1e-3")


def terminal(page: Page, forest: Forest) -> None:
    base = f"/v1/sandboxes/{forest.child}/pty"
    for one in forest.http.get(base).json():  # an earlier picture's
        forest.http.post(f"{base}/{one['pty_id']}/kill")
    go(page, RUNNING, f"sandbox/{forest.child}/terminal")
    expect(page.locator("[data-term] textarea")).to_be_focused()
    expect(page.locator("[data-term]")).to_contain_text("#")
    page.keyboard.type("ls -l --color; python3 -c 'import model; help(model.fit)' | cat\n")
    expect(page.locator("[data-term]")).to_contain_text("fit(hours, power, ridge=0.001)")


# name: what is shown, the size, the colours
PICTURES = {
    "ui-tree": (tree, WIDE, "light"),
    "ui-tree-dark": (tree, WIDE, "dark"),
    "ui-sandbox": (plot, (1100, 800), "light"),
    "ui-diff": (diff, (1100, 480), "light"),
    "ui-terminal-dark": (terminal, WIDE, "dark"),
    "ui-tree-phone": (tree, PHONE, "light"),
    "ui-sandbox-phone": (plot, PHONE, "light"),
    "ui-diff-phone": (diff, PHONE, "light"),
    "ui-terminal-phone": (terminal, PHONE, "dark"),
}


def take(browser: Browser, forest: Forest, name: str, folder: Path) -> None:
    show, (width, height), colours = PICTURES[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if colours == "dark" else "light",
        reduced_motion="reduce",
        is_mobile=width == PHONE[0],
        has_touch=width == PHONE[0],
    )
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    show(page, forest)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # A palette: the pages have few colours.
    picture.quantize(256, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)
    context.close()


def main() -> None:
    folder = Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[2] / "docs/pictures")
    http = httpx.Client(base_url=RUNNING.base, timeout=300, trust_env=False)
    with http, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        forest = Forest(http)
        try:
            for name in PICTURES:
                take(browser, forest, name, folder)
        finally:
            forest.remove()
            browser.close()


if __name__ == "__main__":
    main()
