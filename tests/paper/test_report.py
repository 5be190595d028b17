"""The report says what the runs say, is whole and safe, and works in a browser."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import shlex
from contextlib import redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import PHONE, WIDE, choose, fetched, fits, visit, wait_for
from matplotlib.pyplot import imsave
from synthetic import LEVELS, Row, make_run, results_of, synthetic_results

from skmix.paper import DIGIT_FEATURES, Settings, make_data, make_tables, run_one
from skmix.paper.methods import BestRun
from skmix.paper.page import render, report_data, write_report
from skmix.paper.study import StudyResults
from skmix.paper.tables import SOURCES, Table
from skmix.paper.variants import METHODS, VARIANTS

a_run = partial(make_run, method="published", accuracy=0.8)
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@cache
def synthetic_data() -> dict[str, Any]:
    return report_data(synthetic_results())


def with_runs(*runs: Row) -> StudyResults:
    results = synthetic_results()
    return results_of(runs, results.data, settings=results.settings)


def test_the_same_results_give_the_same_bytes(tmp_path: Path, page: Path) -> None:
    again = write_report(synthetic_results(), tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


def test_headlines_and_reasons_count_the_runs() -> None:
    results = with_runs(
        a_run(run=0, accuracy=0.1, reason="overflow"),
        a_run(run=1, accuracy=0.1, reason="constant feature"),
        a_run(run=2, accuracy=0.3, reason="constant feature"),
        a_run(run=3, accuracy=0.4),
        a_run(run=4, accuracy=0.7, reason="too few rows"),
        a_run(run=5, accuracy=0.5),
        a_run(run=0, variant="4D", accuracy=0.1, reason="too few rows"),
        a_run(run=0, method="robust", accuracy=0.8),
        a_run(run=1, method="robust", accuracy=0.7),
        a_run(run=0, n_kernels=15, accuracy=0.1, reason="overflow"),
    )
    data = report_data(results)
    # Of the paper's 500 runs each, 481 of 3D and 445 of 4D succeed; table 1 and 6 have the accuracies.
    assert data["sources"] == {
        "paper": {"failures": 19 + 55, "runs": 1000, "mean": "0.790", "best": "0.900"},
        "published": {"failures": 6, "runs": 7, "mean": "0.225", "best": "0.400"},
        "robust": {"failures": 0, "runs": 2, "mean": "0.750", "best": "0.800"},
    }
    failures = data["failures"]
    assert failures["variants"] == ["3D", "4D"]
    assert failures["outcomes"] == {
        **{"constant feature": [2, 0], "too few rows": [1, 1], "overflow": [1, 0], "singular": [4, 1]},
        **{"singular but > 0.5": [1, 0], "finite but <= 0.5": [2, 0], "failed": [5, 1], "runs": [6, 1]},
    }
    assert failures["paper"] == [19, 55]


def test_failures_and_differences_have_the_papers_numbers() -> None:
    lost = [a_run(run=number, variant="4D", accuracy=0.2) for number in range(10)]
    # Table 1: a mean of 0.778 over 500 runs; table 3: 0.858 over the 445 that succeeded.
    expected = f"{(500 * 0.778 - 445 * 0.858) / 55:.2f} to 0.13"
    assert report_data(with_runs(*lost))["failures"]["means"] == [expected, "0.20 to 0.20"]
    (median,) = report_data(with_runs(*(a_run(run=number, accuracy=0.6) for number in range(40))))[
        "differences"
    ]
    assert (median["paper"], median["ours"], median["difference"]) == ("0.848", "0.600", "-0.248")


def test_a_study_of_one_variant_has_a_page() -> None:
    runs = [run for run in synthetic_results().runs.to_dict("records") if run["variant"] == "3x1D"]
    page = render(report_data(with_runs(*runs)))
    assert "#sweep" not in page
    within = "Started inside the classes, the mean run is within 0.01 of the best of 24 robust runs"
    assert re.search(f'<p class="headline">{within} in [01] of 1 comparisons.</p>', page)
    few = [run for run in runs if run["method"] != "class-wise"]
    page = render(report_data(with_runs(*few)))
    part = "part of the paper (3x1D; paper's algorithm, rerun and robust), run again"
    assert f"<h1>Shared kernel models: {part}</h1>".replace("'", "&#39;") in page
    assert "of 500 runs failed with 3x1D, run again here." in page
    # A single variant has no rank, and this one is not in the sweep; of its runs, those above one half count.
    assert [number for number in range(1, 7) if f'id="table-{number}"' in page] == [1, 3, 6]
    assert ">24/24</td>" in page


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


def test_pictures_are_inside() -> None:
    imsave(file := io.BytesIO(), np.eye(300, 900))
    figures = dict.fromkeys(("fig1_segments", "accuracy_distribution", "number_of_kernels"), file.getvalue())
    data = report_data(synthetic_results(), figures)
    figure = data["figures"]["fig1_segments"]
    assert base64.b64decode(figure["uri"].removeprefix("data:image/png;base64,")) == figures["fig1_segments"]
    assert (figure["width"], figure["height"]) == (300, 100)
    page = render(data)
    assert page.count(figure["uri"]) == 3
    assert all(f'id="{section}"' in page for section in ("distributions", "sweep", "figures"))


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


def test_cells_of_tables_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 5 has three values in a cell; what is not known is a dash."""
    entries = {
        **{(3, "mean", "3D"): (0.9, 0.85, None, None), (3, "mean", "6D"): (None,) * 4},
        **{(3, "std", "3D"): (0.125, 0.1, None, None), (3, "std", "6D"): (None,) * 4},
        **{(3, "counted", "3D"): (95, 90, 0, None), (3, "counted", "6D"): (None,) * 4},
    }
    index = pd.MultiIndex.from_tuples(entries, names=["K", "accuracy", "variant"])
    table = Table(
        "table5", "Table 5: kernels", pd.DataFrame(list(entries.values()), index, SOURCES, dtype=object)
    )
    failures = make_tables(synthetic_results())["failures"]
    monkeypatch.setattr("skmix.paper.page.make_tables", lambda _: {"table5": table, "failures": failures})
    (shown,) = report_data(synthetic_results())["tables"]
    assert shown["columns"] == ["3D", "6D"]
    (section,) = shown["sections"]
    assert [(row["source"], row["cells"]) for row in section["rows"]] == [
        ("paper", ["0.90 ± 0.125 (95)", "–"]),
        ("published", ["0.850 ± 0.100 (90)", "–"]),
        ("difference", ["-0.050", "–"]),
        ("robust", ["– (0)", "–"]),
        ("class-wise", ["–", "–"]),
    ]


# ---------------------------------------------------------------- in a browser

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
    # Of four matrices for each of ten variants, two are shown.
    for selector, count in {
        "#confusion table": 40,
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


def test_confusion_matrices_follow_the_chosen_method(explored: Any) -> None:
    """Without a script: style sheets show the paper's and those of the chosen method."""
    browser = explored
    best = synthetic_results().best
    for method in ("class-wise", "robust", "published"):
        browser.execute_script(
            "document.querySelector(`input[name=confusion-method][value=${arguments[0]}]`).click()", method
        )
        tables = browser.execute_script(
            "return [...document.querySelectorAll('#confusion figure')].map((f) => "
            "[...f.querySelectorAll('table')].filter((t) => t.offsetParent).map((t) => "
            "[...t.querySelectorAll('tbody tr')].map((r) => "
            "[...r.querySelectorAll('td')].map((c) => Number(c.textContent)))))"
        )
        for variant, shown in zip(LEVELS, tables, strict=True):
            _, ours = shown
            np.testing.assert_array_equal(ours, best[variant, method].confusion)
