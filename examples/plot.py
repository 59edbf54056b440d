# SPDX-License-Identifier: Apache-2.0
"""Draws a chart in a sandbox, and saves it as PNG beside its data as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ramet import RametError, Sandbox

CODE = """
import matplotlib.pyplot as plt
import pandas as pd

demand = pd.DataFrame({"hour": range(24), "power": [40 + 25 * (7 <= h < 22) + h % 5 for h in range(24)]})
plt.plot(demand.hour, demand.power, label="Monday")
plt.xlabel("hour")
plt.ylabel("power (MW)")
plt.title("Demand of one day")
plt.legend()
plt.show()

demand.describe()
"""


def main(folder: Path) -> None:
    with Sandbox() as sbx:
        answer = sbx.run_code(CODE)
    if answer.error or not answer.png:
        raise SystemExit(f"plot: there is no chart: {answer.stderr or answer.stdout}")
    (chart,) = [result.chart for result in answer.results if result.chart]
    (folder / "plot.png").write_bytes(answer.png)
    (folder / "plot.json").write_text(json.dumps(chart, indent=2) + "\n")
    points = sum(len(series["points"]) for series in chart["elements"])
    print(f"plot.png: {len(answer.png):,} bytes")
    print(f"plot.json: a {chart['type']} chart of {chart['y_label']} in {chart['y_unit']}, {points} points")
    print(answer.text)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    except RametError as error:
        raise SystemExit(f"plot: {error}") from None
