# SPDX-License-Identifier: Apache-2.0
"""Forks a sandbox that has a DataFrame of 100 MB in memory; each child computes something else.

No child loads the data: it has the parent's memory, and shares the pages that neither changes. Start
Ramet first, with `./dev up`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from ramet import Sandbox

LOAD = """
import numpy as np, pandas as pd
rng = np.random.default_rng(7)
n = 2_500_000
df = pd.DataFrame({
    "customer": rng.integers(0, 10_000, n),
    "day": rng.integers(0, 365, n),
    "price": rng.gamma(2.0, 20.0, n),
    "rating": rng.normal(3.5, 1.0, n),
    "returned": rng.random(n) < 0.03,
    "shop": rng.integers(0, 40, n).astype("int32"),
    "weight": rng.random(n).astype("float32"),
})
print(f"{len(df):,} rows, {df.memory_usage().sum() / 1e6:.0f} MB")
"""

QUESTIONS = {
    "revenue of the best day": "print(round(df.groupby('day').price.sum().max()))",
    "best customer": "print(df.groupby('customer').price.sum().idxmax())",
    "shop with most returns": "print(df.groupby('shop').returned.mean().idxmax())",
    "rating and price": "print(round(df.rating.corr(df.price), 4))",
    "without outliers": "df = df[df.price < df.price.quantile(.99)]; print(f'{len(df):,} rows')",
}


def ask(child: Sandbox, code: str) -> tuple[str, float]:
    """Runs code in a child; returns what it prints, and the seconds that it took."""
    began = time.perf_counter()
    result = child.run_code(code)
    if not result.ok:
        raise SystemExit(result.stderr)
    return result.stdout.strip(), time.perf_counter() - began


def main() -> None:
    with Sandbox() as parent:
        text, seconds = ask(parent, LOAD)
        print(f"loaded in the parent: {text}, in {seconds:.2f} s")
        began = time.perf_counter()
        children = parent.fork(len(QUESTIONS))
        print(f"{len(children)} children that have the data too: {time.perf_counter() - began:.2f} s")
        try:
            with ThreadPoolExecutor(len(children)) as threads:
                answers = list(threads.map(ask, children, QUESTIONS.values()))
            for question, (answer, seconds) in zip(QUESTIONS, answers):
                print(f"  {question:24} {answer:>16}   {seconds:5.2f} s")
        finally:
            for child in children:
                child.close()
        text, seconds = ask(parent, "print(f'{len(df):,} rows')")
        print(f"the parent still has {text} ({seconds:.2f} s)")


if __name__ == "__main__":
    main()
