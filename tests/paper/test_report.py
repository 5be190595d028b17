"""The report says what the runs say, is whole and safe, and works in a browser."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import shlex
from contextlib import redirect_stdout
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import PHONE, WIDE, choose, fetched, fits, visit, wait_for
from matplotlib.pyplot import imsave
from synthetic import LEVELS, make_run, synthetic_results

from skmix.paper import DIGIT_FEATURES, make_tables
from skmix.paper.harness import Row, Table
from skmix.paper.methods import run_one
from skmix.paper.page import render, report_data, write_report
from skmix.paper.records import BestRun, Beyond, Margin, Run, Settings, StudyResults, make_data
from skmix.paper.variants import METHODS, VARIANTS

a_run = partial(make_run, method="published", accuracy=0.8)
NAMES = [each.name for each in VARIANTS]
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@cache
def synthetic_data() -> dict[str, Any]:
    return report_data(synthetic_results())


def with_runs(*runs: Run) -> StudyResults:
    return dataclasses.replace(synthetic_results(), runs=runs, best={}, beyond=())


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
    counts = {reason["name"]: reason["counts"] for reason in failures["reasons"]}
    assert counts == {"constant feature": [2, 0], "too few rows": [1, 1], "overflow": [1, 0]}
    names = ("variants", "singular", "above", "finite", "totals", "runs", "paper")
    expected = ["3D", "4D"], [4, 1], [1, 0], [2, 0], [5, 1], 7, [19, 55]
    assert tuple(failures[name] for name in names) == expected


def test_failures_and_differences_have_the_papers_numbers() -> None:
    lost = [a_run(run=number, variant="4D", accuracy=0.2) for number in range(10)]
    # Table 1: a mean of 0.778 over 500 runs; table 3: 0.858 over the 445 that succeeded.
    expected = f"{(500 * 0.778 - 445 * 0.858) / 55:.2f} to 0.13"
    assert report_data(with_runs(*lost))["failures"]["means"] == {"paper": expected, "ours": "0.20 to 0.20"}
    (median,) = report_data(with_runs(*(a_run(run=number, accuracy=0.6) for number in range(40))))[
        "differences"
    ]
    assert (median["paper"], median["ours"], median["difference"]) == ("0.848", "0.600", "-0.248")
    confusion = np.diag([97, *[100] * 9])
    confusion[0, 1] = 3
    beyond = Beyond("shared kernels, pixels", "", True, 0.997, 0.9, confusion)
    data = report_data(dataclasses.replace(synthetic_results(), beyond=(beyond,)))
    assert [each["errors"] for each in data["beyond"]] == [3]


def test_accuracies_on_a_border_belong_above_it() -> None:
    """0.29 / 0.01 is less than 29 in floating point, 0.57 / 0.01 is more than 56.99; 1.0 has the last bin."""
    values = (0.29, 0.57, 0.58, 0.589, 1.0, 0.0)
    (variant,) = report_data(with_runs(*(a_run(run=i, accuracy=value) for i, value in enumerate(values))))[
        "variants"
    ]
    counts = [[0, 1], [29, 1], [57, 1], [58, 2], [99, 1]]
    assert variant["methods"]["published"] == {"n": 6, "failed": 2, "counts": counts, "best": None}


def test_the_sweep_takes_the_first_runs_at_the_paper_s_k() -> None:
    runs = [a_run(run=i, accuracy=0.9 if i < 100 else 0.1) for i in range(150)]
    runs += [a_run(run=i, n_kernels=15, accuracy=(0.6, 0.8, 0.2)[i]) for i in range(3)]
    runs += [a_run(run=i, n_kernels=3, accuracy=0.3) for i in range(2)]
    (variant,) = report_data(with_runs(*runs))["sweep"]["variants"]
    points = {point["K"]: point for point in variant["methods"]["published"]}
    assert (points[10]["n"], points[10]["lost"], points[10]["mean"]) == (100, 0, 0.9)
    assert (points[15]["n"], points[15]["lost"], points[15]["mean"]) == (3, 1, 0.7)
    assert points[15]["std"] == pytest.approx(0.1414, abs=1e-4)
    # With three kernels nobody can be above one half; such runs are not lost.
    assert (points[3]["lost"], points[3]["mean"]) == (0, 0.3)
    printed = {point["K"]: point for point in variant["paper"]}
    assert printed[18] == {"K": 18, "mean": 0.84, "std": 0.05, "lost": 39, "n": 100}
    # One run has no standard deviation, and runs at the paper's K alone are no sweep.
    (variant,) = report_data(with_runs(a_run(), a_run(n_kernels=12)))["sweep"]["variants"]
    assert variant["methods"]["published"][0]["std"] is None
    assert report_data(with_runs(a_run()))["sweep"]["variants"] == []


def test_a_study_of_one_variant_has_a_page() -> None:
    runs = [run for run in synthetic_results().runs if run.variant == "3x1D" and run.method != "class-wise"]
    results = dataclasses.replace(with_runs(*runs), margins=(Margin(0, "3x1D", 24, 0.9, 0.895),))
    page = render(report_data(results))
    assert "#sweep" not in page
    within = "Started inside the classes, the mean run is within 0.01 of the best of 24 robust runs"
    assert f'<p class="headline">{within} in 1 of 1 comparisons.</p>' in page
    part = "part of the paper (3x1D; paper's algorithm, rerun and robust), run again"
    assert f"<h1>Shared kernel models: {part}</h1>".replace("'", "&#39;") in page
    assert "of 500 runs failed with 3x1D, run again here." in page
    # A single variant has no rank; of its runs, those above one half are counted.
    assert [number for number in range(1, 7) if f'id="table-{number}"' in page] == [1, 3, 5, 6]
    own = sum(run.method == "robust" and run.n_kernels == 10 for run in runs)
    assert f">{own}/{own}</td>" in page


def test_nothing_in_the_data_can_end_the_script() -> None:
    data = report_data(synthetic_results())
    data["claims"] = [
        {"claim": NASTY, "target": "1 < 2", "measured": "2 > 1", "holds": False, "note": "a & b"}
    ]
    data["methods"][0]["label"] = NASTY + "\u2028"
    page = render(data)
    assert "0 of 1 claims hold" in page
    assert "a &amp; b" in page
    start = page.index(">", page.index('id="report-data"')) + 1
    embedded = page[start : page.index("</script>", start)]
    assert not set("<>&\u2028") & set(embedded)
    assert json.loads(embedded)["methods"][0]["label"] == NASTY + "\u2028"
    assert "<script>alert" not in page


def test_the_papers_figures_are_inside() -> None:
    imsave(file := io.BytesIO(), np.eye(300, 900))
    figures = {"fig1_segments": file.getvalue(), "accuracy_distribution": b"drawn by the page"}
    data = report_data(synthetic_results(), figures)
    (figure,) = data["figures"]
    assert base64.b64decode(figure["uri"].removeprefix("data:image/png;base64,")) == figures["fig1_segments"]
    assert (figure["width"], figure["height"]) == (300, 100)
    assert figure["uri"] in render(data)


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
        variant["methods"]["robust"]["best"]["mixtures"][0],
        results.best["6D", "robust"].mixtures[0],
    )
    full = np.zeros((6, 6))
    full[np.triu_indices(6)] = mixture["covariances"][3]
    np.testing.assert_allclose(full, np.triu(model.covariances_[3]), rtol=1e-4)
    np.testing.assert_allclose(mixture["weights"], model.weights_, atol=5.1e-6)
    np.testing.assert_allclose(mixture["means"], model.means_, rtol=1e-4)
    assert mixture["prior"] == [0.1] * 10


def test_variants_have_the_papers_numbers_and_the_best_runs() -> None:
    results = synthetic_results()
    found = {each["name"]: each for each in synthetic_data()["variants"]}
    assert list(found) == NAMES
    # Tables 3 and 6 of the paper.
    assert (found["2Dx3D"]["paper"]["n"], found["2Dx3D"]["paper"]["median"]) == (500, 0.959)
    assert (found["10D"]["paper"]["max"], found["4D"]["paper"]["failed"]) == (0.77, 55)
    assert found["4D"]["paper"]["best"]["matrix"][0][8] == 88
    assert found["2Dx3D"]["feature_sets"] == [["pca 4", "pca 5"], ["q2", "q3", "q4"]]
    for method in METHODS:
        best, own = results.best["3D", method].run, found["3D"]["methods"][method]
        assert (own["best"]["run"], own["best"]["matrix"]) == (best.run, best.confusion.tolist())
        assert own["best"]["accuracy"] == pytest.approx(best.accuracy, abs=5.1e-5)


@pytest.mark.slow
def test_the_command_for_one_run_makes_it_again() -> None:
    settings = Settings(seed=3, train_per_digit=6, test_per_digit=4, max_iter=20)
    run = run_one(make_data(settings), "3D", 10, "robust", 5, settings)
    best = {("3D", "robust"): BestRun(run, synthetic_results().best["3D", "robust"].mixtures)}
    results = dataclasses.replace(synthetic_results(), settings=settings, best=best)
    command = shlex.split(report_data(results)["made"]["commands"][1])
    assert command[0] == "python"
    assert command[1] == "-c"
    with redirect_stdout(io.StringIO()) as printed:
        exec(command[2], {})
    assert f"accuracy={run.accuracy!r}" in printed.getvalue()
    assert f"log_likelihood={run.log_likelihood!r}" in printed.getvalue()


def test_cells_of_tables_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 5 has three values in a cell; what is not known is a dash."""
    sources = ("paper, printed", "paper's algorithm, rerun", "robust")
    entries = {"mean": (0.9, 0.85, None), "std": (0.125, 0.1, None), "counted": (95, 90, 0)}
    rows = tuple(Row(("3", part), (own, (None, None, None))) for part, own in entries.items())
    table = Table("table5", "Table 5: kernels", ("K", "accuracy"), "variant", ("3D", "6D"), sources, rows)
    monkeypatch.setattr("skmix.paper.page.make_tables", lambda results: (table, make_tables(results)[-1]))
    (shown,) = report_data(synthetic_results())["tables"]
    assert shown["columns"] == ["3D", "6D"]
    (section,) = shown["sections"]
    assert [(row["source"], row["cells"]) for row in section["rows"]] == [
        ("paper", ["0.90 ± 0.125 (95)", "–"]),
        ("published", ["0.850 ± 0.100 (90)", "–"]),
        ("difference", ["-0.050", "–"]),
        ("robust", ["– (0)", "–"]),
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
