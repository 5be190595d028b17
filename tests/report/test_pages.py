"""Pages of models and evaluations say what these say, and escape what comes from data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import PHONE, WIDE, choose, embedded, fetched, fits, visit, wait_for
from numpy.testing import assert_allclose, assert_array_equal

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, open_rows
from skmix.metrics import ReliabilityBin
from skmix.plots import plot_projections
from skmix.plots._models import drawn_kernels
from skmix.report import Evaluation, evaluation_page, model_page
from skmix.report.evaluation import evaluation_data
from skmix.report.model_page import model_data

HOSTILE = "</script><img src=x onerror=alert(1)>"
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


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_the_page_of_a_model_has_its_numbers(covariance_type: str) -> None:
    X, y = labelled(3)
    model = SharedKernelClassifier(4, covariance_type=covariance_type, **SETTINGS).fit(X, y)
    data = embedded(model_page(model, title="model"))
    (group,) = data["feature_sets"]
    assert group["features"] == ["feature 0", "feature 1", "feature 2"]
    # Beside the features, the axes along which kernels differ.
    assert group["axes"] == ["axis 1", "axis 2", "axis 3"]
    kernels = drawn_kernels(model)
    directions = np.concatenate([np.eye(3), kernels.directions_of_difference(3)])
    means, covariances = kernels.project(directions)
    assert_allclose(group["weights"], model.weights_, atol=5e-6)
    assert_allclose(group["means"], means, rtol=1e-4, atol=1e-4)
    assert_allclose(group["covariances"], covariances[(..., *np.triu_indices(6))], rtol=1e-3, atol=1e-4)
    assert data["classes"] == ["a", "b", "c"]


def test_classes_and_settings() -> None:
    model = fitted(2, priors=[0.5, 0.25, 0.25])
    data = model_data(model, title="model")
    assert [row["prior"] for row in data["class_rows"]] == ["0.500", "0.250", "0.250"]
    assert [row["count"] for row in data["class_rows"]] == ["40", "40", "40"]
    for c, row in enumerate(data["class_rows"]):
        own = model.weights_[:, c]
        assert row["heaviest"] == f"k{own.argmax()} ({own.max():.2f})"
        assert int(row["used"]) == (own >= 0.01).sum()
        assert row["effective"] == f"{np.prod(own**-own):.1f}"
    overall = model.weights_ @ [0.5, 0.25, 0.25]
    assert data["n_effective"] == [f"{np.prod(overall**-overall):.1f}"]
    settings = dict(data["settings"])
    ended = f"converged in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.6g}"
    assert settings["fit"] == ended
    # A threshold, a temperature and a fit that did not converge are said too.
    (part,) = model.models_
    part.converged_, model.temperature_, model.threshold_ = False, 1.25, -7.5
    settings = dict(model_data(model, title="model")["settings"])
    assert settings["fit"].startswith("did not converge in ")
    assert settings["calibrated"] == "with temperature 1.25 (less extreme probabilities)"
    assert settings["outliers"] == "rows with a log-density below -7.5"
    # Without classes, no rows are counted.
    data = model_data(GaussianMixture(2, random_state=0).fit(labelled(2)[0]), title="model")
    assert (data["counted"], data["class_rows"][0]["count"]) == (False, "–")


def test_pages_have_room_for_so_many_features(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = SharedKernelMixture(3, covariance_type="diag", **SETTINGS).fit(labelled(300)[0])
    (group,) = model_data(wide, title="model")["feature_sets"]
    assert len(group["features"]) + len(group["axes"]) == 40
    assert "38 of the 300 features" in group["note"]
    # Feature sets share the room.
    monkeypatch.setitem(model_data.__globals__, "_MAX_ENTRIES", 200)
    model = fitted(20, feature_sets=[list(range(10)), list(range(10, 20))], covariance_type="diag")
    groups = model_data(model, title="model")["feature_sets"]
    numbers = [len(group["features"]) + len(group["axes"]) for group in groups]
    assert min(numbers) > 4
    assert {int(name.split()[1]) // 10 for name in groups[1]["features"]} == {1}
    assert sum(4 * n * (n + 1) / 2 for n in numbers) <= 200


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
    data, page = (make(NUMBERS, title="animals") for make in (evaluation_data, evaluation_page))
    assert all(each in page for each in ("0.750", "0.531 to 0.888", "baseline 0.500", "0.812", "0.125"))
    assert "There is no interval for macro F1: " in page
    assert "worse than the shares" not in page
    for loss, baseline in ((0.7, 0.6931), (0.7, 0.0)):
        worse = replace(NUMBERS, log_loss=loss, baseline={"accuracy": 1.0, "log_loss": baseline})
        assert ("worse than the shares" in evaluation_page(worse, title="")) == (baseline > 0.0)
    assert [(row["true"], row["predicted"], row["count"], row["share"]) for row in data["mistakes"]] == [
        ("dog", "cat", 4, "40.0 %"),
        ("cat", "dog", 1, "10.0 %"),
    ]
    measures = {"precision": 9 / 13, "recall": 0.9, "f1": 18 / 23}
    assert data["classes"][0] == {"label": "cat", "n_rows": 10, **measures}
    assert data["classes"][2]["precision"] is None
    # Refused rows are errors, and rows of their class.
    refusing = replace(NUMBERS, refused=np.array([0, 10, 0]))
    data = evaluation_data(refusing, title="")
    assert [(row["n_rows"], row["refused"]) for row in data["classes"]] == [(10, 0), (20, 10), (0, 0)]
    assert data["mistakes"][0]["share"] == "20.0 %"


# ---------------------------------------------------------------- in a browser


def hostile_page() -> str:
    X, y = labelled(3, (HOSTILE, "b & c", "plain"))
    table = pd.DataFrame(X, columns=[HOSTILE, "x'\"", "y"])
    model = SharedKernelClassifier(3, **SETTINGS).fit(table, y)
    return model_page(model, title=HOSTILE)


def drawn(browser: Any) -> str:
    return wait_for(browser, "return document.querySelector('#model-plot svg')?.innerHTML")


def opened(browser: Any, folder: Path, page: str, *how: Any) -> None:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    visit(browser, path, *how)


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
        for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
            opened(chromium, tmp_path, page, size, scheme)
            wait_for(chromium, "return document.querySelector('#model-plot svg, #reliability-chart svg')")
            assert chromium.get_log("browser") == [], name
            assert fits(chromium, size), name
            assert fetched(chromium) == [], name
            assert chromium.execute_script("return document.images.length") == 0


def test_the_page_follows_its_controls(chromium: Any, tmp_path: Path) -> None:
    model = fitted(4, priors=[0.5, 0.3, 0.2])
    opened(chromium, tmp_path, model_page(model, title="m"))
    before = drawn(chromium)
    # The heaviest kernel tells its weight to the keyboard.
    overall = model.weights_ @ model.class_prior_
    kernel = chromium.find_element("css selector", "#model-plot .kernel-group[tabindex='0']")
    chromium.execute_script("arguments[0].focus()", kernel)
    tip = chromium.find_element("id", "tip")
    assert f"kernel k{overall.argmax()}, weight {overall.max():.3f}" in tip.text
    for control, value in (
        ("model-measure", "share"),
        ("model-class", "1"),
        ("model-across", "2"),
        ("model-up", "1"),
        ("model-up", "density"),
    ):
        choose(chromium, control, value)
        assert drawn(chromium) != before, control
        before = drawn(chromium)
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#model-weights tr')]"
        ".map((r) => [Number(r.children[0].textContent.slice(1)), Number(r.children[1].textContent)])"
    )
    assert_allclose([dict(shown)[k] for k in range(4)], model.weights_[:, 1], atol=5.6e-4)
    # A plane is chosen among the projections, and ellipses reach one standard deviation in it.
    buttons = chromium.find_elements("css selector", "#model-planes button")
    chromium.execute_script("arguments[0].click()", buttons[4])
    paths = chromium.execute_script(
        "return [...document.querySelectorAll('#model-plot .kernel-group')]"
        ".map((g) => [Number(g.dataset.kernel), g.querySelector('.kernel').getAttribute('d')])"
    )
    drawings = {k: np.array(re.findall(r"-?[\d.]+", d), dtype=float).reshape(-1, 2) for k, d in paths}
    for axis, feature in enumerate((1, 3)):
        values, pixels = [], []
        for k, points in drawings.items():
            sigma = np.sqrt(model.covariances_[k, feature, feature])
            values += [model.means_[k, feature] - sigma, model.means_[k, feature] + sigma]
            ends = [points[:, axis].min(), points[:, axis].max()]
            pixels += ends if axis == 0 else ends[::-1]
        slope, intercept = np.polyfit(values, pixels, 1)
        assert_allclose(intercept + slope * np.array(values), pixels, atol=0.4)
    # Where an ellipse is widest, its height is the correlation; it has 72 corners.
    for k, points in drawings.items():
        covariance, heights = model.covariances_[k], points[:, 1].mean() - points[:, 1]
        correlation = covariance[1, 3] / np.sqrt(covariance[1, 1] * covariance[3, 3])
        widest = heights[np.argmax(points[:, 0])] / (np.ptp(heights) / 2)
        assert widest == pytest.approx(correlation, abs=0.07)
    assert chromium.get_log("browser") == []


def test_the_page_of_an_evaluation_is_read_and_sorted(chromium: Any, tmp_path: Path) -> None:
    opened(chromium, tmp_path, evaluation_page(replace(NUMBERS, classes=(HOSTILE, "dog", "yeti")), title="a"))
    cell = wait_for(chromium, "return document.querySelectorAll('#matrix td[data-i]')[3]")
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#matrix tbody tr')].map((r) => "
        "[...r.querySelectorAll('td')].map((c) => Number(c.textContent)))"
    )
    assert_array_equal(shown, NUMBERS.confusion)
    chromium.execute_script("arguments[0].focus()", cell)
    assert "4 rows of dog" in chromium.find_element("id", "tip").text
    button = chromium.find_element("css selector", "th[data-key=recall] button")
    for names in (["dog", HOSTILE, "yeti"], [HOSTILE, "dog", "yeti"]):
        chromium.execute_script("arguments[0].click()", button)
        found = [each.text for each in chromium.find_elements("css selector", "#class-body th")]
        assert found == names
