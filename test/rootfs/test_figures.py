# SPDX-License-Identifier: Apache-2.0
"""Figures and frames of the packages in the root file system: real matplotlib, pandas and Pillow are
tested here only.
"""

from __future__ import annotations

import json
from pathlib import Path

from conftest import run_example
from ramet import Sandbox

PNG = b"\x89PNG\r\n\x1a\n"

FIGURES = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots(2, 2)
axes[0, 0].plot([1, 2, 3], [1, 4, float("nan")], label="squares")
axes[0, 0].set(xlabel="time (s)", title="lines")
axes[0, 1].bar(["a", "b"], [3, 4])
axes[1, 0].pie([1, 3], labels=["x", "y"])
axes[1, 1].boxplot([[1, 2, 3, 4, 20]])
print("before")
plt.show()
print("after")
plt.figure()
plt.scatter([1, 2], [3, 4])
None
"""


def test_figures_are_pictures_and_data(sbx: Sandbox) -> None:
    order: list[str] = []
    answer = sbx.run_code(
        FIGURES, on_stdout=order.append, on_result=lambda result: order.append("figure")
    )
    assert answer.ok, answer.stderr
    assert order == ["before\n", "figure", "after\n", "figure"]
    four, one = answer.results
    assert four.png and four.png.startswith(PNG) and answer.png == four.png
    assert four.chart and one.chart and four.chart["type"] == "superchart"
    line, bar, pie, box = four.chart["elements"]
    assert [chart["type"] for chart in (line, bar, pie, box)] == [
        "line", "bar", "pie", "box_and_whisker",
    ]
    assert line["elements"] == [{"label": "squares", "points": [[1, 1], [2, 4], [3, None]]}]
    assert (line["title"], line["x_label"], line["x_unit"]) == ("lines", "time", "s")
    assert [(e["label"], e["value"]) for e in bar["elements"]] == [("a", 3), ("b", 4)]
    assert [(e["label"], e["angle"]) for e in pie["elements"]] == [("x", 90), ("y", 270)]
    assert box["elements"][0]["median"] == 3 and box["elements"][0]["outliers"] == [20]
    assert one.chart["elements"][0]["points"] == [[1, 3], [2, 4]]
    assert sbx.run_code("plt.get_fignums()").text == "[]"


def test_frames_and_pictures(sbx: Sandbox) -> None:
    code = "import pandas as pd\nf = pd.DataFrame({'n': [1, 2], 't': pd.to_datetime(['2026-01-01', None])})"
    answer = sbx.run_code(code + "\nf")
    (frame,) = answer.results
    assert answer.text == sbx.run_code("print(f)").stdout[:-1]
    assert frame.html and "<table" in frame.html
    assert frame.data and frame.data["n"] == [1, 2] and frame.data["t"][1] is None
    assert str(frame.data["t"][0]).startswith("2026-01-01T00:00:00")
    answer = sbx.run_code("from PIL import Image\nImage.new('RGB', (3, 2), 'red')")
    assert answer.png and answer.png.startswith(PNG)


def test_frames_have_their_own_values(sbx: Sandbox) -> None:
    sbx.run_code("import pandas as pd, decimal")
    code = (
        "pd.DataFrame({'f': [0.1 + 0.2, 1/3], 'i': [float('inf'), None],"
        " 't': pd.to_datetime(['2026-01-01 00:00:00.123456789', None]),"
        " 'o': [decimal.Decimal('1.10'), b'\\xff']})"
    )
    (frame,) = sbx.run_code(code).results
    assert frame.data == {
        "f": [0.1 + 0.2, 1 / 3],
        "i": ["Infinity", None],
        "t": ["2026-01-01T00:00:00.123456789", None],
        "o": ["1.10", "b'\\xff'"],
    }
    (frame,) = sbx.run_code("pd.DataFrame([[1, 2]], columns=['a', 'a'])").results
    assert frame.data is None and frame.columns == [("a", [1]), ("a", [2])] and frame.note
    (frame,) = sbx.run_code("pd.DataFrame({'a': range(3)}).tail(1)").results
    assert frame.data == {"index": [2], "a": [2]}


def test_installed_packages_can_be_imported(sbx: Sandbox) -> None:
    answer = sbx.run_code("%pip --version\n!echo $((6 * 7))\nawait __import__('asyncio').sleep(0, 5)")
    assert answer.stdout.startswith("pip ") and answer.stdout.endswith("\n42\n")
    assert answer.text == "5"


def test_plot_example(tmp_path: Path) -> None:
    text = run_example("plot.py", str(tmp_path))
    assert "24 points" in text and (tmp_path / "plot.png").read_bytes().startswith(PNG)
    chart = json.loads((tmp_path / "plot.json").read_text())
    assert chart["title"] == "Demand of one day" and chart["elements"][0]["label"] == "Monday"
