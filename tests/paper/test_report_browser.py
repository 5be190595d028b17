"""The page in a real browser: it loads cleanly, fetches nothing, reacts, and fits a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, choose, fetched, fits, visit, wait_for
from synthetic import LEVELS, synthetic_results

DRAWING = "const svg = document.querySelector('#explorer-plot svg'); return svg && svg.innerHTML"


@pytest.fixture
def explored(chromium: Any, page: Path) -> Any:
    """Return the browser with the page as another such test left it: each sets all that it needs."""
    if chromium.current_url != page.as_uri() or not chromium.execute_script("return window.explored"):
        visit(chromium, page)
        chromium.execute_script("window.explored = true")
    return chromium


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_the_page_loads_without_errors_fetches_nothing_and_fits(
    chromium: Any, page: Path, size: tuple[int, int], scheme: str
) -> None:
    browser = chromium
    visit(browser, page, size, scheme)
    assert browser.get_log("browser") == []
    assert fetched(browser) == []
    assert fits(browser, size)
    # Every chart is there: ten distributions, four sweeps, ten pairs of matrices, an explorer.
    for selector, count in {
        "#distribution-charts svg": 10,
        "#sweep-charts svg": 4,
        "#confusion-matrices table": 20,
        "#explorer-plot svg": 1,
        "#tables table": 6,
    }.items():
        found = browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)
        assert found == count, selector


def test_the_policy_would_stop_a_script_from_fetching(chromium: Any, page: Path) -> None:
    """The page forbids itself all requests, so that no later change can slip one in."""
    visit(chromium, page)
    outcome = chromium.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "fetch('https://example.invalid/').catch(() => {});"
    )
    assert outcome == "connect-src"


def test_every_control_of_the_explorer_changes_the_drawing(chromium: Any, page: Path) -> None:
    browser = chromium
    visit(browser, page)
    for control, value in (
        ("explore-variant", "6D"),
        ("explore-method", "class-wise"),
        ("explore-digit", "7"),
        ("explore-digit", "all"),
        ("explore-across", "q4"),
        ("explore-up", "pca 4"),
        ("explore-up", "density"),
        ("explore-style", "paper"),
    ):
        before = wait_for(browser, DRAWING)
        choose(browser, control, value)
        assert wait_for(browser, DRAWING) != before, (control, value)
    assert browser.get_log("browser") == []


def test_the_explorer_shows_the_weights_of_the_chosen_class(explored: Any) -> None:
    browser = explored
    model = synthetic_results().best["4D", "robust"].mixtures[0]
    choose(browser, "explore-variant", "4D")
    choose(browser, "explore-method", "robust")
    for digit in (0, 9):
        choose(browser, "explore-digit", str(digit))
        rows = browser.execute_script(
            "return [...document.querySelectorAll('#explorer-weights tr')]"
            ".map((r) => [r.cells[0].textContent, r.cells[1].textContent])"
        )
        shown = {int(kernel.removeprefix("k")): float(weight) for kernel, weight in rows}
        expected = model.weights_[:, digit]
        np.testing.assert_allclose([shown[k] for k in range(10)], expected, atol=0.00056)


def outlines(browser: Any) -> dict[int, np.ndarray]:
    """Return the corners (n, 2) of every kernel's ellipse, in pixels."""
    paths = browser.execute_script(
        "return [...document.querySelectorAll('#explorer-plot .kernel-group')]"
        ".map((g) => [g.dataset.kernel, g.querySelector('.kernel').getAttribute('d')])"
    )
    return {
        int(kernel): np.array([float(number) for number in re.findall(r"-?[\d.]+", path)]).reshape(-1, 2)
        for kernel, path in paths
    }


def test_ellipses_reach_one_standard_deviation_and_lean(explored: Any) -> None:
    """An ellipse reaches the root of a feature's variance either side of the mean; pixels are an affine map
    of feature values, the vertical one upside down. Where it is widest, its height is the correlation."""
    browser, pair = explored, ("pca 2", "q4")
    model = synthetic_results().best["13D", "robust"].mixtures[0]
    for control, value in zip(("variant", "method", "across", "up"), ("13D", "robust", *pair), strict=True):
        choose(browser, f"explore-{control}", value)
    found = outlines(browser)
    columns = [list(model.feature_names_in_).index(feature) for feature in pair]
    deviations = np.sqrt(np.diagonal(model.covariances_, axis1=1, axis2=2))
    for axis, column in enumerate(columns):
        mean, sigma = model.means_[:, column], deviations[:, column]
        ends = np.array([[found[k][:, axis].min(), found[k][:, axis].max()] for k in range(10)])
        low, high = ends.T if axis == 0 else ends.T[::-1]
        values, pixels = np.concatenate([mean - sigma, mean + sigma]), np.concatenate([low, high])
        slope, intercept = np.polyfit(values, pixels, 1)
        np.testing.assert_allclose(intercept + slope * values, pixels, atol=0.25)
        assert (slope > 0) == (axis == 0)
    i, j = columns
    for k, points in found.items():
        widest, middle = points[np.argmax(points[:, 0])], points.mean(axis=0)
        correlation = model.covariances_[k, i, j] / (deviations[k, i] * deviations[k, j])
        # The ellipse is drawn with 72 corners, of which the widest may be half a step away.
        height = (middle[1] - widest[1]) / (np.ptp(points[:, 1]) / 2)
        assert height == pytest.approx(correlation, abs=0.07)


def test_confusion_matrices_follow_the_chosen_method(explored: Any) -> None:
    browser = explored
    best = synthetic_results().best
    for method in ("class-wise", "robust", "published"):
        browser.execute_script(
            "document.querySelector(`input[name=confusion-method][value=${arguments[0]}]`).click()", method
        )
        tables = browser.execute_script(
            "return [...document.querySelectorAll('#confusion-matrices figure')].map((f) => "
            "[...f.querySelectorAll('table:last-child tbody tr')].slice(-10).map((r) => "
            "[...r.querySelectorAll('td')].map((c) => Number(c.textContent))))"
        )
        for variant, shown in zip(LEVELS, tables, strict=True):
            np.testing.assert_array_equal(shown, best[variant, method].run.confusion)
