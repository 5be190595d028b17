"""The page in a real browser: it loads cleanly, fetches nothing, reacts, and fits a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, choose, visit, wait_for
from synthetic import LEVELS, synthetic_results

Open = Callable[..., Any]


@pytest.fixture
def opened(chromium: Any, page: Path) -> Open:
    """Return a function that opens the page afresh at a size, in light or dark."""

    def open_page(size: tuple[int, int] = WIDE, scheme: str = "light") -> Any:
        visit(chromium, page, size, scheme)
        return chromium

    return open_page


@pytest.fixture
def explored(chromium: Any, page: Path) -> Any:
    """Return the browser with the page as another such test left it: each sets all that it needs."""
    if chromium.current_url != page.as_uri() or not chromium.execute_script("return window.explored"):
        visit(chromium, page)
        chromium.execute_script("window.explored = true")
    return chromium


def drawing(browser: Any) -> str:
    """Return what is drawn."""
    script = "const svg = document.querySelector('#explorer-plot svg'); return svg && svg.innerHTML"
    return wait_for(browser, script)


def offered(browser: Any, control: str) -> list[str]:
    return browser.execute_script(
        "return [...document.getElementById(arguments[0]).options].map((o) => o.value)", control
    )


def weights_shown(browser: Any) -> dict[int, float]:
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#explorer-weights tr')]"
        ".map((r) => [r.cells[0].textContent, r.cells[1].textContent])"
    )
    return {int(kernel.removeprefix("k")): float(weight) for kernel, weight in rows}


def boxes(browser: Any) -> dict[int, tuple[float, float, float, float]]:
    """Return the extent (left, right, top, bottom) of every kernel's ellipse, in pixels."""
    paths = browser.execute_script(
        "return [...document.querySelectorAll('#explorer-plot .kernel-group')]"
        ".map((g) => [g.dataset.kernel, g.querySelector('.kernel').getAttribute('d')])"
    )
    found = {}
    for kernel, path in paths:
        points = np.array([float(number) for number in re.findall(r"-?[\d.]+", path)]).reshape(-1, 2)
        (left, top), (right, bottom) = points.min(axis=0), points.max(axis=0)
        found[int(kernel)] = (left, right, top, bottom)
    return found


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_the_page_loads_without_errors_fetches_nothing_and_fits(
    opened: Open, page: Path, size: tuple[int, int], scheme: str
) -> None:
    browser = opened(size, scheme)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    wanted = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in wanted
    assert [url for url in wanted if url != page.as_uri() and not url.startswith("data:")] == []
    assert "run again" in browser.title
    inner, outer = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert inner <= outer == size[0]
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
    if size is PHONE:
        shares = browser.execute_script(
            "const whole = document.querySelector('.differences').clientWidth;"
            "return [...document.querySelectorAll('.differences td')].map((td) => td.clientWidth / whole)"
        )
        # Cells are one below the other, each as wide as the screen; empty ones are left out.
        assert 0.0 in shares
        assert all(share == 0.0 or share > 0.9 for share in shares)


def test_the_policy_would_stop_a_script_from_fetching(opened: Open) -> None:
    """The page forbids itself all requests, so that no later change can slip one in."""
    browser = opened()
    outcome = browser.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (e) => done(e.violatedDirective));"
        "fetch('https://example.invalid/').catch(() => {});"
    )
    assert outcome == "connect-src"


def test_every_control_of_the_explorer_changes_the_drawing(opened: Open) -> None:
    browser = opened()
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
        before = drawing(browser)
        choose(browser, control, value)
        assert drawing(browser) != before, (control, value)
    assert browser.get_log("browser") == []


def test_controls_have_labels_and_take_the_keyboard(opened: Open) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    nameless = browser.execute_script(
        "return [...document.querySelectorAll('select, input')]"
        ".filter((c) => !c.labels.length || !c.labels[0].textContent.trim()).map((c) => c.id || c.name)"
    )
    assert nameless == []
    before = drawing(browser)
    digit = browser.find_element("id", "explore-digit")
    digit.send_keys(Keys.ARROW_DOWN)
    assert digit.get_attribute("value") == "1"
    assert drawing(browser) != before


def test_the_explorer_offers_planes_within_a_group_only(explored: Any) -> None:
    browser = explored
    choose(browser, "explore-variant", "2Dx3D")
    assert offered(browser, "explore-across") == ["pca 4", "pca 5", "q2", "q3", "q4"]
    choose(browser, "explore-across", "pca 4")
    assert offered(browser, "explore-up") == ["pca 5", "density"]
    choose(browser, "explore-variant", "3x1D")
    for feature in ("q2", "q3", "q4"):
        choose(browser, "explore-across", feature)
        assert offered(browser, "explore-up") == ["density"]
        assert len(boxes(browser)) == 10
    assert browser.get_log("browser") == []


def test_the_explorer_shows_the_weights_of_the_chosen_class(explored: Any) -> None:
    browser = explored
    model = synthetic_results().best["4D", "robust"].mixtures[0]
    choose(browser, "explore-variant", "4D")
    choose(browser, "explore-method", "robust")
    for digit in (0, 9):
        choose(browser, "explore-digit", str(digit))
        shown = weights_shown(browser)
        np.testing.assert_allclose(
            [shown[k] for k in range(10)], model.weights_[:, digit], atol=0.00056
        )  # fmt: skip
    choose(browser, "explore-digit", "all")
    shown = weights_shown(browser)
    np.testing.assert_allclose([shown[k] for k in range(10)], model.weights_.mean(axis=1), atol=0.0006)


@pytest.mark.parametrize("pair", [("pca 2", "q4"), ("q3", "pca 9")])
def test_ellipses_have_the_extent_of_one_standard_deviation(explored: Any, pair: tuple[str, str]) -> None:
    """An ellipse reaches the square root of a feature's variance either side of the mean, whatever the
    correlation; pixels are an affine map of feature values, the vertical one upside down."""
    browser = explored
    model = synthetic_results().best["13D", "robust"].mixtures[0]
    choose(browser, "explore-variant", "13D")
    choose(browser, "explore-method", "robust")
    choose(browser, "explore-across", pair[0])
    choose(browser, "explore-up", pair[1])
    found = boxes(browser)
    for axis, feature in enumerate(pair):
        column = list(model.feature_names_in_).index(feature)
        mean, sigma = model.means_[:, column], np.sqrt(model.covariances_[:, column, column])
        ends = np.array([found[k][2 * axis : 2 * axis + 2] for k in range(10)])
        low, high = (ends[:, 1], ends[:, 0]) if axis == 1 else (ends[:, 0], ends[:, 1])
        values, pixels = np.concatenate([mean - sigma, mean + sigma]), np.concatenate([low, high])
        slope, intercept = np.polyfit(values, pixels, 1)
        np.testing.assert_allclose(intercept + slope * values, pixels, atol=0.25)
        assert (slope > 0) == (axis == 0)


def test_ellipses_lean_with_the_correlation(explored: Any) -> None:
    """Where an ellipse is widest, its height off the mean is covariance over standard deviation."""
    browser = explored
    model = synthetic_results().best["9D", "class-wise"].mixtures[0]
    choose(browser, "explore-variant", "9D")
    choose(browser, "explore-method", "class-wise")
    choose(browser, "explore-across", "q3")
    choose(browser, "explore-up", "pca 6")
    names = list(model.feature_names_in_)
    i, j = names.index("q3"), names.index("pca 6")
    paths = dict(
        browser.execute_script(
            "return [...document.querySelectorAll('#explorer-plot .kernel-group')]"
            ".map((g) => [g.dataset.kernel, g.querySelector('.kernel').getAttribute('d')])"
        )
    )
    for k in range(10):
        points = np.array([float(n) for n in re.findall(r"-?[\d.]+", paths[str(k)])]).reshape(-1, 2)
        widest = points[np.argmax(points[:, 0])]
        middle = points.mean(axis=0)
        half_height = np.ptp(points[:, 1]) / 2
        correlation = model.covariances_[k, i, j] / np.sqrt(
            model.covariances_[k, i, i] * model.covariances_[k, j, j]
        )
        # The ellipse is drawn with 72 corners, of which the widest may be half a step away.
        assert (middle[1] - widest[1]) / half_height == pytest.approx(correlation, abs=0.07)


def test_a_kernel_tells_its_number_and_weight_to_pointer_and_keyboard(explored: Any) -> None:
    from selenium.webdriver import ActionChains

    browser = explored
    choose(browser, "explore-variant", "4D")
    groups = browser.find_elements("css selector", "#explorer-plot .kernel-group")
    heaviest = groups[-1]
    kernel = int(heaviest.get_attribute("data-kernel"))
    weight = weights_shown(browser)[kernel]
    expected = f"kernel k{kernel}, weight {weight:.3f}"
    tip = browser.find_element("id", "tip")

    browser.execute_script("arguments[0].focus()", heaviest)
    assert expected in tip.text
    assert heaviest.get_attribute("aria-label") == expected
    browser.execute_script("arguments[0].blur()", heaviest)
    assert not tip.is_displayed()

    # Scrolling hides a tip, so it has to be over: the event comes with the next frame.
    left, top = browser.execute_async_script(
        "const [group, done] = arguments; group.scrollIntoView({block: 'center'});"
        "const p = group.querySelector('.kernel').getPointAtLength(0);"
        "const q = p.matrixTransform(group.getScreenCTM());"
        "requestAnimationFrame(() => requestAnimationFrame(() => done([q.x, q.y])))",
        heaviest,
    )
    ActionChains(browser).move_by_offset(int(left), int(top)).perform()
    try:
        assert expected in tip.text
    finally:
        ActionChains(browser).move_by_offset(-int(left), -int(top)).perform()


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


def test_histograms_tell_their_counts(explored: Any) -> None:
    """Every run of a method is under exactly one bar."""
    browser = explored
    bars = browser.execute_script(
        "return [...document.querySelectorAll('#distribution-charts svg')].map((s) => "
        "['published', 'robust', 'class-wise'].map((w) => s.querySelectorAll(`.method-${w} .bar`).length))"
    )
    results = synthetic_results()
    for variant, counts in zip(LEVELS, bars, strict=True):
        for method, count in zip(("published", "robust", "class-wise"), counts, strict=True):
            # Whole per cent; a perfect run shares the last bar.
            accuracies = {
                min(run.confusion.trace() * 100 // run.confusion.sum(), 99)
                for run in results.runs
                if (run.variant, run.n_kernels, run.method) == (variant, 10, method)
            }
            assert count == len(accuracies)
