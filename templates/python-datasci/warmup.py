# SPDX-License-Identifier: Apache-2.0
"""Runs once, before the snapshot is taken: every sandbox begins with all of this loaded.

Libraries load parts of themselves at their first use, so each is used a little. The names stay
defined: np, pd, sklearn and plt exist in the user's first call."""

import matplotlib

matplotlib.use("module://ramet_matplotlib")  # it draws like agg; plt.show() sends figures as results

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
import sklearn.ensemble
import sklearn.linear_model
import sklearn.metrics
import sklearn.model_selection
import sklearn.pipeline
import sklearn.preprocessing


def _warm_up() -> None:
    import io

    x = np.linspace(0.0, 1.0, 64).reshape(-1, 2)
    y = x @ np.array([1.0, 2.0])
    np.linalg.svd(x)

    frame = pd.DataFrame({"key": ["a", "b"] * 16, "x": x[:, 0], "y": y})
    frame.groupby("key").agg(["mean", "sum"])
    table = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    table.merge(frame, on="key").describe().to_string()

    model = sklearn.pipeline.make_pipeline(
        sklearn.preprocessing.StandardScaler(), sklearn.linear_model.LinearRegression()
    )
    sklearn.metrics.r2_score(y, model.fit(x, y).predict(x))
    sklearn.ensemble.RandomForestClassifier(n_estimators=2).fit(x, y > 1.5)

    # The first figure builds the font list, which is then cached in a file.
    figure, axes = plt.subplots()
    axes.plot(x[:, 0], y, label="y")
    axes.set_title("warm-up")
    axes.legend()
    figure.savefig(io.BytesIO(), format="png")
    plt.close(figure)


_warm_up()
del _warm_up
