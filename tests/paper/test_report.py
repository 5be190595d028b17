"""The report says what the runs say, is whole and safe, and works in a browser."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, choose, fetched, fits, visit, wait_for
from synthetic import synthetic_results

from skmix.paper import DIGIT_FEATURES, Settings, make_data, run_one
from skmix.paper.methods import BestRun
from skmix.paper.page import render, report_data, write_report
from skmix.paper.variants import METHODS, VARIANTS

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@cache
def synthetic_data() -> dict[str, Any]:
    return report_data(synthetic_results())


def test_the_same_results_give_the_same_bytes(tmp_path: Path, page: Path) -> None:
    again = write_report(synthetic_results(), tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


def test_nothing_in_the_data_can_end_the_script() -> None:
    data = report_data(synthetic_results())
    nasty = {"claim": NASTY, "target": "1 < 2", "measured": "2 > 1", "holds": False, "note": "a & b"}
    data["claims"] = {"paper": [], "skmix": [nasty | {"certainty": NASTY}]}
    data["methods"][0]["label"] = NASTY + "\u2028"
    page = render(data)
    assert "Claims of skmix: 0 of 1 hold with these runs" in page
    assert "Claims of the paper" not in page
    assert "a &amp; b" in page
    start = page.index(">", page.index('id="report-data"')) + 1
    embedded = page[start : page.index("</script>", start)]
    assert not set("<>&\u2028") & set(embedded)
    assert json.loads(embedded)["methods"][0]["label"] == NASTY + "\u2028"
    assert "<script>alert" not in page


def test_the_explorer_has_the_first_rows_of_each_digit_and_the_mixtures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(report_data.__globals__, "_ROWS_PER_DIGIT", 2)
    results = synthetic_results()
    order = np.random.default_rng(0).permutation(300)
    names = ("train_images", "train_labels", "train_features", "train_dithered")
    data = dataclasses.replace(results.data, **{name: getattr(results.data, name)[order] for name in names})
    shown = report_data(dataclasses.replace(results, data=data))
    explorer, labels = shown["explorer"], data.train_labels.tolist()
    kept = [row for row, label in enumerate(labels) if labels[:row].count(label) < 2]
    assert explorer["labels"] == [labels[row] for row in kept]
    assert (len(kept), explorer["n_rows"], explorer["features"]) == (20, 300, list(DIGIT_FEATURES))
    np.testing.assert_allclose(explorer["plain"], data.train_features[kept], atol=5.1e-5)
    np.testing.assert_allclose(explorer["dithered"], data.train_dithered[kept], atol=5.1e-5)
    variant = next(each for each in shown["variants"] if each["name"] == "6D")
    mixture, model = (
        variant["methods"]["robust"]["mixtures"][0],
        results.best["6D", "robust"].mixtures[0],
    )
    full = np.zeros((6, 6))
    full[np.triu_indices(6)] = mixture["covariances"][3]
    np.testing.assert_allclose(full, np.triu(model.covariances_[3]), rtol=1e-4)
    np.testing.assert_allclose(mixture["weights"], model.weights_, atol=5.1e-6)
    np.testing.assert_allclose(mixture["means"], model.means_, rtol=1e-4)
    assert mixture["prior"] == [0.1] * 10


def test_variants_have_the_papers_matrices_and_the_best_runs() -> None:
    results = synthetic_results()
    found = {each["name"]: each for each in synthetic_data()["variants"]}
    assert list(found) == list(VARIANTS)
    assert found["4D"]["paper"]["matrix"][0][8] == 88
    assert found["2Dx3D"]["feature_sets"] == [["pca 4", "pca 5"], ["q2", "q3", "q4"]]
    for method in METHODS:
        best, shown = results.best["3D", method], found["3D"]["methods"][method]
        assert (shown["run"], shown["matrix"]) == (best.run, best.confusion.tolist())
        assert shown["accuracy"] == pytest.approx(np.trace(best.confusion) / best.confusion.sum(), abs=5.1e-5)


@pytest.mark.slow
def test_the_command_for_one_run_makes_it_again() -> None:
    settings = Settings(seed=3, train_per_digit=6, test_per_digit=4, max_iter=20)
    run = run_one(make_data(settings), "3D", 10, "robust", 5, settings)
    mixtures = synthetic_results().best["3D", "robust"].mixtures
    best = BestRun("3D", "robust", 5, run["accuracy"], np.eye(10, dtype=np.int64), mixtures)
    results = dataclasses.replace(synthetic_results(), settings=settings, best={("3D", "robust"): best})
    command = shlex.split(report_data(results)["made"]["commands"][1])
    assert command[:2] == ["python", "-c"]
    with redirect_stdout(io.StringIO()) as printed:
        exec(command[2], {})
    assert printed.getvalue() == f"{run}\n"


# ---------------------------------------------------------------- in a browser

DRAWING = "const svg = document.querySelector('#explorer-plot svg'); return svg && svg.innerHTML"


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_the_page_loads_without_errors_fetches_nothing_and_fits(
    chromium: Any, page: Path, size: tuple[int, int], scheme: str
) -> None:
    browser = chromium
    visit(browser, page, size, scheme)
    assert browser.get_log("browser") == []
    assert fetched(browser) == []
    assert fits(browser, size)
    # Of four matrices for each of ten variants, two are shown.
    for selector, count in {
        "#confusion table": 40,
        "#explorer-plot svg": 1,
        "#tables table": 6,
    }.items():
        found = browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)
        assert found == count, selector


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
    ):
        before = wait_for(browser, DRAWING)
        choose(browser, control, value)
        assert wait_for(browser, DRAWING) != before, (control, value)
    assert browser.get_log("browser") == []
