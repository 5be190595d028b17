"""Pages of models and evaluations say what these say, and escape what comes from data."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import PHONE, WIDE, fetched, fits, visit, wait_for
from numpy.testing import assert_allclose

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, open_rows
from skmix.metrics import ReliabilityBin
from skmix.plots import plot_projections
from skmix.report import Evaluation, evaluation_page, model_page

HOSTILE = "</script><img src=x onerror=alert(1)>$\\bad{$"
SETTINGS: dict[str, Any] = {"random_state": 0, "tol": 1e-2, "max_iter": 1000}
NAN = float("nan")
NUMBERS = Evaluation(
    n_rows=20,
    classes=("cat", "dog", "yeti"),
    accuracy=0.75,
    log_loss=0.5,
    macro_f1=0.75,
    roc_auc=0.8125,
    calibration_error=0.125,
    confusion=np.array([[9, 1, 0], [4, 6, 0], [0, 0, 0]]),
    precision=np.array([9 / 13, 6 / 7, NAN]),
    recall=np.array([0.9, 0.6, NAN]),
    f1=np.array([18 / 23, 12 / 17, NAN]),
    baseline={"accuracy": 0.5, "log_loss": 0.6931},
    intervals={"accuracy": (0.531, 0.888), "log_loss": (0.25, 0.75), "macro_f1": None},
    reliability=[ReliabilityBin(0.55, 0.5, 8), ReliabilityBin(0.95, 11 / 12, 12)],
)


def labelled(n_features: int, labels: Any = ("a", "b", "c")) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.array(labels), 40)
    centres = 3.0 * np.random.RandomState(1).normal(size=(len(labels), n_features))
    return np.random.RandomState(0).normal(size=(len(y), n_features)) + np.repeat(centres, 40, axis=0), y


def fitted(n_features: int = 3, **settings: Any) -> SharedKernelClassifier:
    return SharedKernelClassifier(4, **SETTINGS, **settings).fit(*labelled(n_features))


def tables(page: str) -> list[list[list[str]]]:
    """The texts of the cells of each line of each table of a page."""

    def texts(tag: str, source: str) -> list[str]:
        return re.findall(rf"<{tag}\b[^>]*>(.*?)</(?:{tag})>", source, re.DOTALL)

    return [
        [
            [html.unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in texts("t[hd]", line)]
            for line in texts("tr", table)
        ]
        for table in texts("table", page)
    ]


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("n_sets", [1, 2])
def test_the_page_of_a_model_has_its_weights(n_sets: int) -> None:
    sets = None if n_sets == 1 else [[3, 0], [2]]
    model = fitted(4, feature_sets=sets)
    page = model_page(model, title="model")
    assert page == model_page(model, title="model")
    heat_maps = [table for table in tables(page) if table[0][1:] == ["a", "b", "c"]]
    assert len(heat_maps) == n_sets
    for part, (_, *lines) in zip(model.models_, heat_maps, strict=True):
        weights = {line[0]: [float(cell or 0.0) for cell in line[1:]] for line in lines}
        assert_allclose([weights[f"k{k}"] for k in range(4)], part.weights_, atol=0.0051)
    # Two pictures for each set: all classes together, and each of them.
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert len(pictures) == 2 * n_sets
    assert all(base64.b64decode(picture).rstrip().endswith(b"</svg>") for picture in pictures)


def test_files_are_drawn_by_the_names_of_their_columns(tmp_path: Path) -> None:
    X, y = labelled(2)
    frame, path = pd.DataFrame({"u": X[:, 0], "v": X[:, 1]}), tmp_path / "rows.csv"
    frame.assign(other="text", y=y)[["v", "other", "y", "u"]].to_csv(path, index=False)
    model = SharedKernelClassifier(4, **SETTINGS).fit(frame, y)
    opened = open_rows(path, label="y")
    for given in ((frame, y), (path, "y"), (opened, None), (opened, "y"), (open_rows(X), y), (X, y)):
        (panel,) = plot_projections(model, "b", *given)
        assert_allclose(np.column_stack(panel.get_lines()[0].get_data()), X[y == "b"])


# ---------------------------------------------------------------- evaluations


def test_the_numbers_of_the_evaluation() -> None:
    page = evaluation_page(NUMBERS, title="animals")
    assert all(text in page for text in ("0.750", "0.531 to 0.888", "baseline 0.500", "0.812", "0.125"))
    assert "There is no interval for macro F1: " in page
    assert "worse than the shares" not in page
    for loss, baseline in ((0.7, 0.6931), (0.7, 0.0)):
        worse = replace(NUMBERS, log_loss=loss, baseline={"accuracy": 1.0, "log_loss": baseline})
        assert ("worse than the shares" in evaluation_page(worse, title="")) == (baseline > 0.0)
    matrix, mistakes, classes, bins = tables(page)
    assert [line[1:] for line in matrix[1:]] == [["9", "1", ""], ["4", "6", ""], ["", "", ""]]
    assert 'title="4 rows of dog predicted as cat, 40.0 % of 10"' in page
    assert mistakes[1:] == [["dog", "cat", "4", "40.0 %"], ["cat", "dog", "1", "10.0 %"]]
    assert classes[1] == ["cat", "10", "13", "0.692", "0.900", "0.783"]
    assert classes[3] == ["yeti", "0", "0", "–", "–", "–"]
    assert bins[1:] == [["0.550", "0.500", "8"], ["0.950", "0.917", "12"]]
    # Refused rows are errors, and rows of their class.
    refusing = evaluation_page(replace(NUMBERS, refused=np.array([0, 10, 0])), title="")
    _, mistakes, classes, _ = tables(refusing)
    assert [line[1:4] for line in classes[1:]] == [["10", "13", "0"], ["20", "7", "10"], ["0", "0", "0"]]
    assert mistakes[1][-1] == "20.0 %"


# ---------------------------------------------------------------- in a browser


def hostile_page() -> str:
    X, y = labelled(3, (HOSTILE, "b & c", "plain\x1b"))
    table = pd.DataFrame(X, columns=[HOSTILE, "x'\"", "y"])
    model = SharedKernelClassifier(3, **SETTINGS).fit(table, y)
    return model_page(model, title=HOSTILE)


def test_pages_load_without_errors_and_fit(chromium: Any, tmp_path: Path) -> None:
    one = labelled(1)[0]
    many = np.random.RandomState(0).uniform(size=(1200, 2))
    crowd = SharedKernelMixture(150, max_iter=9, tol=100.0, random_state=0).fit(many)
    for name, page in {
        "classes": model_page(fitted(7), title="classes"),
        "feature sets": model_page(fitted(4, feature_sets=[[3, 0], [2]]), title="sets"),
        "one feature": model_page(GaussianMixture(1).fit(one), title="one"),
        "many kernels": model_page(crowd, title="many"),
        "hostile": hostile_page(),
        "evaluation": evaluation_page(replace(NUMBERS, classes=(HOSTILE, "dog", "yeti")), title="animals"),
    }.items():
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
            visit(chromium, path, size, scheme)
            drawn = "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
            assert wait_for(chromium, f"return document.readyState === 'complete' && {drawn}"), name
            assert chromium.get_log("browser") == [], name
            assert fits(chromium, size), name
            assert fetched(chromium) == [], name
            assert chromium.execute_script("return document.scripts.length") == 0
