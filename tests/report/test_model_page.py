"""The page of a fitted model says what the model says, for any model, and escapes what comes from data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, choose, fits, visit, wait_for
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture
from skmix.plots._models import kernels_of
from skmix.report import describe, model_page
from skmix.report.model_page import _settings, mixture_values, model_data, offered_planes
from skmix.report.rendering import decimals, joined, kernel_values, line_styles, significant, text

HOSTILE = "</script><img src=x onerror=alert(1)>"
SETTINGS: dict[str, Any] = {"random_state": 0, "tol": 1e-2, "max_iter": 1000}


def labelled(n_features: int, labels: Any = ("a", "b", "c")) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.array(labels), 40)
    centres = 3.0 * np.random.RandomState(1).normal(size=(len(labels), n_features))
    return np.random.RandomState(0).normal(size=(len(y), n_features)) + np.repeat(centres, 40, axis=0), y


def fitted(n_features: int = 3, **settings: Any) -> SharedKernelClassifier:
    return SharedKernelClassifier(4, **SETTINGS, **settings).fit(*labelled(n_features))


def embedded(page: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    return json.loads(found)


# ---------------------------------------------------------------- what it says


def test_the_data_are_those_of_the_model() -> None:
    model = fitted(3)
    X, y = labelled(3)
    data = embedded(model_page(model, title="model", X=X, y=y))
    (group,) = data["groups"]
    assert group["features"] == ["feature 0", "feature 1", "feature 2"]
    assert_allclose(group["weights"], model.weights_, atol=5e-6)
    assert_allclose(np.array(group["means"])[:, :3], model.means_, rtol=1e-4)
    upper = np.triu_indices(3 + len(group["axes"]))
    for triangle, covariance in zip(group["covariances"], model.covariances_, strict=True):
        full = np.zeros((upper[0].max() + 1,) * 2)
        full[upper] = triangle
        assert_allclose(full[:3, :3], np.triu(covariance), rtol=1e-4)
    assert_allclose(np.array(data["rows"]["values"][0])[:3], X.T, rtol=1e-4)
    # Then the axes along which kernels differ: means and rows are projected alike, to unit variance within.
    assert group["axes"] == ["axis 1", "axis 2", "axis 3"]
    axes = kernels_of(model).directions_of_difference(3)
    assert_allclose(np.array(group["means"])[:, 3:], model.means_ @ axes.T, rtol=1e-4, atol=1e-4)
    assert_allclose(np.array(data["rows"]["values"][0])[3:], axes @ X.T, rtol=1e-4, atol=1e-4)
    for triangle, covariance in zip(group["covariances"], model.covariances_, strict=True):
        full = np.zeros((6, 6))
        full[upper] = triangle
        assert_allclose(full[3:, 3:], np.triu(axes @ covariance @ axes.T), rtol=1e-3, atol=1e-4)
        assert_allclose(full[:3, 3:], covariance @ axes.T, rtol=1e-3, atol=1e-4)
    assert_allclose(data["prior"], model.class_prior_, atol=5e-6)
    assert (group["name"], group["note"]) == ("", "")
    data = model_data(model, title="model", X=X, y=y)
    assert (data["n_kernels"], data["n_features"], data["rows_note"]) == ([4], [3], "")
    assert [data["classes"][c] for c in data["rows"]["labels"]] == y.tolist()


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
def test_any_covariance_type(covariance_type: str) -> None:
    X, y = labelled(4)
    model = SharedKernelMixture(5, covariance_type=covariance_type, **SETTINGS).fit(X, y)
    (group,) = model_data(model, title="model")["groups"]
    assert np.shape(group["covariances"]) == (5, 8 * 9 // 2)
    # Drawn rows know the covariance too: of all kernels together it is within and between them.
    weights = model.weights_ @ model.class_prior_
    drawn, _ = model.sample(40_000)
    within = weights @ np.array(group["covariances"])[:, 0]
    assert within + np.cov(model.means_[:, 0], aweights=weights, ddof=0) == pytest.approx(
        drawn[:, 0].var(), rel=0.05
    )


def test_classes_and_facts() -> None:
    model = fitted(2, priors=[0.5, 0.25, 0.25])
    data = model_data(model, title="model")
    assert [row["name"] for row in data["class_rows"]] == ["a", "b", "c"]
    assert [row["prior"] for row in data["class_rows"]] == ["0.500", "0.250", "0.250"]
    assert [row["count"] for row in data["class_rows"]] == ["40", "40", "40"]
    for c, row in enumerate(data["class_rows"]):
        own = model.weights_[:, c]
        assert row["heaviest"] == f"k{own.argmax()} ({own.max():.2f})"
        assert int(row["used"]) == (own >= 0.01).sum()
        assert row["effective"] == f"{np.prod(own**-own):.1f}"
    overall = model.weights_ @ [0.5, 0.25, 0.25]
    assert data["n_effective"] == [f"{np.prod(overall**-overall):.1f}"]
    # Four kernels of two means, three entries of a covariance; three weights for each of three classes.
    assert data["n_parameters"] == 4 * 5 + 3 * 3
    page = model_page(model, title="model")
    n_shared = sum((weights >= 0.01).sum() > 1 for weights in model.weights_)
    said = {0: "each of one class", 1: "1 of which serves more than one class"}
    whose = said.get(n_shared, f"{n_shared} of which serve more than one class")
    assert f"4 Gaussian kernels, {whose}, in 2 features." in page
    assert '<div class="number">29</div><div class="note">free parameters</div>' in page
    settings = dict(data["settings"])
    assert settings["estimator"] == "SharedKernelClassifier"
    assert settings["priors"] == "[0.5, 0.25, 0.25]"
    assert "variance_floor" not in settings
    assert settings["covariances"] == model.covariance_type_
    assert (settings["converged"], settings["passes"]) == ("yes", str(model.n_iter_))
    assert settings["log-likelihood of the training rows"] == f"{model.log_likelihood_:.6g}"
    # A threshold, a temperature and a fit that did not converge are said too.
    assert not {"temperature", "rows are rejected below a log-density of"} & settings.keys()
    (part,) = model.models_
    part.converged_, model.temperature_, model.threshold_ = False, 1.25, -7.5
    settings = dict(model_data(model, title="model")["settings"])
    assert (settings["converged"], settings["temperature"]) == ("no", "1.25")
    assert settings["rows are rejected below a log-density of"] == "-7.5"
    mixture = GaussianMixture(2, random_state=0).fit(labelled(2)[0])
    data = model_data(mixture, title="model")
    settings = dict(data["settings"])
    assert settings["log-likelihood of a training row"] == f"{mixture.lower_bound_:.6g}"
    # Priors are those of all rows, those of the background among them.
    X, y = labelled(2, ("a", "b"))
    two = SharedKernelMixture(2, **SETTINGS).fit(X, y)
    two.class_prior_, two.background_weights_ = np.array([0.5, 0.5]), np.array([0.5, 0.0])
    assert [row["prior"] for row in model_data(two, title="")["class_rows"]] == ["0.500", "0.500"]
    # Rows are not counted where there are no classes.
    assert (data["counted"], data["class_rows"][0]["count"]) == (False, "–")


def test_what_a_search_did_to_the_features_is_said() -> None:
    described = describe(fitted(2)) | {"n_transformed": 2, "by_rank": True, "n_members": 3}
    said = dict(_settings(fitted(2), described))
    assert said["features transformed by rank"] == "2 of 2"
    assert said["models averaged"] == "3; this is the best one"
    assert dict(_settings(fitted(2), described | {"by_rank": False}))["features transformed by a power"]


def test_planes_are_those_in_which_kernels_are_furthest_apart() -> None:
    """Features 5, 1, 3, 0, 2, 4, 6 in the order of the distance of the kernels in them."""
    order = [5, 1, 3, 0, 2, 4, 6]
    for n_features, first, planes in (
        (1, [0], []),
        (2, [0, 1], []),
        (6, [1, 5], [0, 1, 2, 3, 4, 5]),
        # Beyond six features two axes are shown first, and six features side by side.
        (7, [7, 8], [0, 1, 2, 3, 4, 5]),
    ):
        means = np.zeros((3, n_features))
        for place, d in enumerate(each for each in order if each < n_features):
            means[:, d] = np.array([-1.0, 0.0, 1.0]) * (10.0 - place)
        model = SharedKernelMixture(3, covariance_type="full")
        model.means_, model.covariances_ = means, np.tile(np.eye(n_features), (3, 1, 1))
        model.weights_, model.classes_, model.class_prior_ = np.full((3, 1), 1 / 3), np.zeros(1), np.ones(1)
        kernels = kernels_of(model)
        values = mixture_values(kernels, *offered_planes(kernels, 1), name="group 1")
        assert (values["first"], values["planes"], values["name"]) == (first, planes, "group 1")
        assert len(values["axes"]) == (2 if n_features > 2 else 0)


def test_numbers_are_rounded_and_words_joined() -> None:
    assert decimals([[0.123456, -0.00001], [np.nan, np.inf]], 3) == [[0.123, 0.0], [None, None]]
    assert str(decimals(-0.00001, 3)) == "0.0"
    assert significant([[123456.0, 0.00123456], [np.nan, -np.inf]]) == [[123460.0, 0.0012346], [None, None]]
    assert [text(None), text(np.inf), text(1.23456), text(1.23456, 1)] == ["–", "–", "1.235", "1.2"]
    assert [joined(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    found = kernel_values(
        np.array([[0.1234567]]), np.array([[1.0, 2.0]]), np.array([[[1.0, 3.0], [3.0, 2.0]]])
    )
    assert found == {"weights": [[0.12346]], "means": [[1.0, 2.0]], "covariances": [[1.0, 3.0, 2.0]]}
    styles = line_styles()
    assert len(styles["steps"]) == len(styles["step_names"]) == 7
    # The paper's table 7.
    assert styles["styles"]["paper"]["widths"] == [0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert styles["styles"]["paper"]["colours"][-1] == "black"
    assert styles["styles"]["accessible"]["colours"] != styles["styles"]["paper"]["colours"]


def test_feature_sets_have_their_own_kernels_and_columns() -> None:
    model = fitted(4, feature_sets=[[3, 0], [2]])
    X, y = labelled(4)
    data = model_data(model, title="model", X=X, y=y)
    assert [group["features"] for group in data["groups"]] == [["feature 3", "feature 0"], ["feature 2"]]
    assert [group["name"] for group in data["groups"]] == ["group 1", "group 2"]
    assert (data["n_kernels"], data["n_features"]) == ([4, 4], [2, 1])
    for c, row in enumerate(data["class_rows"]):
        own = [part.weights_[:, c] for part in model.models_]
        assert row["heaviest"] == " + ".join(f"k{each.argmax()} ({each.max():.2f})" for each in own)
        assert row["used"] == " + ".join(str((each >= 0.01).sum()) for each in own)
    settings = dict(data["settings"])
    assert settings["passes"] == " and ".join(str(part.n_iter_) for part in model.models_)
    for group, part in zip(data["groups"], model.models_, strict=True):
        assert_allclose(group["means"], part.means_, rtol=1e-4)
    assert_allclose(data["rows"]["values"][0], X[:, [3, 0]].T, rtol=1e-4)
    assert_allclose(data["rows"]["values"][1], X[:, [2]].T, rtol=1e-4)


def test_many_features_are_held_to_what_a_page_can_take() -> None:
    model = SharedKernelMixture(3, covariance_type="diag", **SETTINGS).fit(labelled(300)[0])
    page = model_page(model, title="model", X=labelled(300)[0])
    (group,) = embedded(page)["groups"]
    assert len(group["features"]) + len(group["axes"]) == 40
    assert group["note"].startswith("38 of the 300 features are offered")
    assert len(page) < 400_000


def test_feature_sets_share_the_room_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(model_data.__globals__, "_MAX_ENTRIES", 200)
    model = fitted(20, feature_sets=[list(range(10)), list(range(10, 20))], covariance_type="diag")
    numbers = [
        len(group["features"]) + len(group["axes"]) for group in model_data(model, title="model")["groups"]
    ]
    assert min(numbers) > 4
    assert sum(4 * n * (n + 1) / 2 for n in numbers) <= 200


def test_rows_are_sampled_and_unknown_labels_kept_apart() -> None:
    model = fitted(2)
    X, y = np.random.RandomState(0).normal(size=(5000, 2)), np.array(["a", "z"] * 2500)
    X[:, 0] = np.where(y == "a", 1.0, -1.0) * np.abs(X[:, 0])
    X[7, 1] = np.nan
    data = model_data(model, title="model", X=X, y=y)
    assert len(data["rows"]["labels"]) == len(data["rows"]["values"][0][0]) == 2000
    assert data["rows"]["labels"] == [0 if value > 0.0 else None for value in data["rows"]["values"][0][0]]
    assert set(data["rows"]["labels"]) == {0, None}
    assert data["rows_note"] == "2000 of the 5000 rows are drawn, chosen at random."
    given = {tuple(row) for row in np.round(X, 3).tolist()}
    drawn = np.round(np.array(data["rows"]["values"][0], dtype=float).T, 3)
    assert sum(tuple(row) in given for row in drawn.tolist()) > 1900
    # From all of the table, in its order.
    places = {tuple(row): place for place, row in enumerate(np.round(X, 3).tolist())}
    found = [places[tuple(row)] for row in drawn.tolist() if tuple(row) in places]
    assert np.mean(np.diff(found) > 0) > 0.98
    assert found[-1] > 4900
    assert model_page(model, title="m", X=X, y=y) == model_page(model, title="m", X=X, y=y)


def test_what_does_not_fit_is_refused() -> None:
    model = fitted(2)
    X, y = labelled(2)
    with pytest.raises(ValueError, match="X has 1 features, but the model was fitted to 2"):
        model_page(model, title="m", X=X[:, :1])
    with pytest.raises(ValueError, match="X has 120 rows but y has 119 labels"):
        model_page(model, title="m", X=X, y=y[1:])
    with pytest.raises(ValueError, match="y was given without X"):
        model_page(model, title="m", y=y)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model_page(SharedKernelMixture(), title="m")


def test_tables_with_other_columns_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    X, y = labelled(2)
    model = SharedKernelMixture(3, **SETTINGS).fit(pd.DataFrame(X, columns=["u", "v"]), y)
    with pytest.raises(ValueError, match="feature names"):
        model_page(model, title="m", X=pd.DataFrame(X, columns=["u", "w"]))
    # Rows without names are taken as they come.
    assert '"features":["u","v"]' in model_page(model, title="m", X=X)


def hostile_page() -> str:
    pd = pytest.importorskip("pandas")
    X, y = labelled(3, (HOSTILE, "b & c", "plain"))
    table = pd.DataFrame(X, columns=[HOSTILE, "x'\"", "y"])
    model = SharedKernelClassifier(3, **SETTINGS).fit(table, y)
    return model_page(model, title=HOSTILE, X=table, y=y)


def test_what_comes_from_data_is_escaped() -> None:
    page = hostile_page()
    assert "<img" not in page
    assert "onerror=alert(1)>" not in page
    assert page.count("</script>") == page.count("<script")
    assert embedded(page)["classes"][0] == HOSTILE


# ---------------------------------------------------------------- in a browser


def drawn(browser: Any) -> str:
    return wait_for(browser, "return document.querySelector('#model-plot svg')?.innerHTML")


def written(folder: Path, page: str) -> Path:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return path


def pages() -> dict[str, str]:
    X, y = labelled(7)
    one = labelled(1)[0]
    many = np.random.RandomState(0).uniform(size=(1200, 2))
    return {
        "classes": model_page(fitted(7), title="classes", X=X, y=y),
        "groups": model_page(fitted(4, feature_sets=[[3, 0], [2]]), title="groups"),
        "one feature": model_page(GaussianMixture(1).fit(one), title="one", X=one),
        "many kernels": model_page(
            SharedKernelMixture(150, max_iter=9, tol=100.0, random_state=0).fit(many), title="many", X=many
        ),
    }


def test_pages_load_without_errors_and_fit(chromium: Any, tmp_path: Path) -> None:
    for name, page in pages().items():
        path = written(tmp_path, page)
        for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
            visit(chromium, path, size, scheme)
            assert drawn(chromium), name
            assert chromium.get_log("browser") == [], name
            assert fits(chromium, size), name
            # Something is painted on the map of weights.
            assert chromium.execute_script(
                "const c = document.getElementById('heat-body'); const d = c.getContext('2d')"
                ".getImageData(0, 0, c.width, c.height).data; return d.some((v) => v > 0)"
            ), name
    nameless = chromium.execute_script(
        "return [...document.querySelectorAll('select, input')].filter((c) => !c.labels.length).length"
    )
    assert nameless == 0
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    wanted = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in wanted if not url.startswith(("data:", "file:"))] == []


def test_the_page_follows_its_controls(chromium: Any, tmp_path: Path) -> None:
    model = fitted(3)
    X, y = labelled(3)
    visit(chromium, written(tmp_path, model_page(model, title="m", X=X, y=y)))
    before = drawn(chromium)
    for control, value in (
        ("model-measure", "share"),
        ("model-class", "1"),
        ("model-across", "2"),
        ("model-up", "1"),
        ("model-up", "density"),
        ("model-style", "paper"),
    ):
        choose(chromium, control, value)
        assert drawn(chromium) != before, control
        before = drawn(chromium)
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#model-weights tr')]"
        ".map((r) => [Number(r.children[0].textContent.slice(1)), Number(r.children[1].textContent)])"
    )
    assert_allclose([dict(shown)[k] for k in range(4)], model.weights_[:, 1], atol=5.6e-4)
    assert chromium.get_log("browser") == []


def test_ellipses_reach_one_standard_deviation_in_the_chosen_plane(chromium: Any, tmp_path: Path) -> None:
    model = fitted(3)
    visit(chromium, written(tmp_path, model_page(model, title="m")))
    drawn(chromium)
    choose(chromium, "model-across", "2")
    choose(chromium, "model-up", "0")
    paths = chromium.execute_script(
        "return [...document.querySelectorAll('#model-plot .kernel-group')]"
        ".map((g) => [Number(g.dataset.kernel), g.querySelector('.kernel').getAttribute('d')])"
    )
    assert sorted(k for k, _ in paths) == [0, 1, 2, 3]
    for axis, feature in enumerate((2, 0)):
        values, pixels = [], []
        for k, path in paths:
            points = np.array(re.findall(r"-?[\d.]+", path), dtype=float).reshape(-1, 2)[:, axis]
            sigma = np.sqrt(model.covariances_[k, feature, feature])
            ends = [points.min(), points.max()] if axis == 0 else [points.max(), points.min()]
            values += [model.means_[k, feature] - sigma, model.means_[k, feature] + sigma]
            pixels += ends
        slope, intercept = np.polyfit(values, pixels, 1)
        assert_allclose(intercept + slope * np.array(values), pixels, atol=0.4)


def test_kernels_and_weights_take_the_keyboard(chromium: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    model = fitted(3)
    visit(chromium, written(tmp_path, model_page(model, title="m")))
    drawn(chromium)
    overall = model.weights_ @ model.class_prior_
    by_weight = np.argsort(-overall)
    kernel = chromium.find_element("css selector", "#model-plot .kernel-group[tabindex='0']")
    assert len(chromium.find_elements("css selector", "#model-plot [tabindex='0']")) == 1
    chromium.execute_script("arguments[0].focus()", kernel)
    tip = chromium.find_element("id", "tip")
    assert f"kernel k{by_weight[0]}, weight {overall[by_weight[0]]:.3f} in all classes" in tip.text
    kernel.send_keys(Keys.ARROW_RIGHT)
    assert f"kernel k{by_weight[1]}, weight" in tip.text

    choose(chromium, "heat-order", "number")
    heat = chromium.find_element("id", "heat")
    chromium.execute_script("arguments[0].focus()", heat)
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT):
        heat.send_keys(key)
    told = chromium.execute_script("return document.getElementById('tip').textContent")
    assert told.startswith(f"kernel k1 in class b: weight {model.weights_[1, 1]:.4f}")
    heat.send_keys(Keys.ENTER)
    assert chromium.execute_script("return document.getElementById('model-class').value") == "1"


def test_a_plane_can_be_chosen_among_the_projections(chromium: Any, tmp_path: Path) -> None:
    visit(chromium, written(tmp_path, model_page(fitted(4), title="m")))
    drawn(chromium)
    buttons = chromium.find_elements("css selector", "#model-planes button")
    assert len(buttons) == 6
    chromium.execute_script("arguments[0].click()", buttons[4])
    assert chromium.execute_script(
        "return ['across', 'up'].map((n) => document.getElementById(`model-${n}`).value)"
    ) == ["1", "3"]


def test_hostile_labels_are_only_shown(chromium: Any, tmp_path: Path) -> None:
    visit(chromium, written(tmp_path, hostile_page()))
    drawn(chromium)
    assert chromium.title == HOSTILE
    assert chromium.execute_script("return document.images.length") == 0
    offered = chromium.execute_script(
        "return [...document.querySelectorAll('#model-class option, #model-across option')]"
        ".map((o) => o.text)"
    )
    assert offered.count(HOSTILE) == 2
    kernel = chromium.find_element("css selector", "#model-plot .kernel-group[tabindex='0']")
    chromium.execute_script("arguments[0].focus()", kernel)
    assert HOSTILE in chromium.find_element("id", "tip").text
    assert chromium.get_log("browser") == []
