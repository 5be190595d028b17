"""The page of a study shows each sample's proportions with intervals, and escapes what comes from data."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from browsing import choose, embedded, fetched, fits, visit, wait_for
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture
from skmix.model.kernel_sets import drawn_kernels
from skmix.samples import Populations, Study, merge_kernels
from skmix.samples import page as pages
from skmix.samples.description import Composition
from skmix.samples.page import offered_planes, study_page

pd = pytest.importorskip("pandas")

HOSTILE = "</script><img src=x onerror=alert(1)>"
SAMPLES = [HOSTILE, "blood 2", "blood 10", "bone marrow"]
DESKTOP, PHONE = (1400, 900), (390, 844)
# Proportions in percent of three populations, the intervals around them, and cells of the samples.
SHARES = np.array([[60.0, 30.0, 10.0], [55.0, 37.0, 8.0], [58.0, 41.96, 0.04], [20.0, 20.0, 60.0]])
WIDTH = np.array([[1.0, 2.0, 0.5], [1.0, 2.0, 0.5], [1.0, 2.0, 0.03], [3.0, 2.0, 1.0]])
CELLS = [400, 300, 1200, 50]


def named(X: np.ndarray) -> Any:
    return pd.DataFrame(X, columns=[HOSTILE, "CD3", "CD4", "CD8"])


@cache
def merged() -> tuple[SharedKernelMixture, Populations, np.ndarray, np.ndarray]:
    """Return a mixture of six kernels, its three populations, and the cells and samples of the fit."""
    rng = np.random.RandomState(0)
    centres = 6.0 * np.random.RandomState(1).normal(size=(3, 4))
    y = np.repeat(np.array(SAMPLES, dtype=object), 100)
    X = centres[rng.randint(3, size=len(y))] + rng.normal(size=(len(y), 4))
    model = SharedKernelMixture(6, random_state=0, tol=1e-2).fit(named(X), y)
    return model, merge_kernels(model, n_populations=3), X, y


def proportions(kind: str = "population", parts: Any = (0, 1, 2), shares: np.ndarray = SHARES) -> Composition:
    width, cells = np.pad(WIDTH, ((0, 0), (0, shares.shape[1] - 3))), np.array(CELLS, dtype=float)
    limits = [(shares + sign * width) / 100 for sign in (-1.0, 1.0)]
    names = np.array(SAMPLES, dtype=object)
    found = [shares / 100, shares / 100, np.zeros_like(shares), *limits]
    return Composition(names, cells, *found, cells, kind, list(parts))


def unusual(*names: str, **changed: float) -> Any:
    """Return what is said of the groups, with other values of the last one."""
    last = {"p_composition": 1.5e-9, "z_likelihood": -0.5, "p_likelihood": 0.6, "p_adjusted": 1.2e-8}
    last |= changed
    return pd.DataFrame(
        {
            "sample": SAMPLES,
            "population": [0, 1, 2, 2],
            "proportion": [0.6, 0.35, 0.0004, 0.6],
            "usual_proportion": [0.5, 0.3, 0.1, 0.1],
            **{name: [0.9, 0.8, 0.7, value] for name, value in last.items()},
            "unusual": [name in names for name in SAMPLES],
        }
    )


def page_of(
    model: Any,
    populations: Any,
    composition: Composition,
    *,
    title: str = "",
    unusual: Any = None,
    cells: Any = None,
    fitted: Any = None,
    markers: Any = (),
    made: Any = (),
    notes: Any = (),
) -> Any:
    """Return the page of a study with these proportions and this table of unusual samples."""
    given = SimpleNamespace(
        model=model,
        populations=populations,
        provenance=lambda: [("scale", "none"), *made],
        composition=composition,
        reference=SimpleNamespace(composition=composition if fitted is None else fitted),
        judged=unusual,
        warnings=[],
        about=SimpleNamespace(
            cells=cells and SimpleNamespace(X=cells[0], y=cells[1]), origin=SimpleNamespace(notes=notes)
        ),
        samples=composition.names.tolist(),
        markers=list(markers),
        kernel_shares=None,
    )
    return study_page(given, title, None)


def made_page(**options: Any) -> str:
    model, populations, X, y = merged()
    given: dict[str, Any] = {"title": HOSTILE, "unusual": unusual("bone marrow"), "cells": (X, y)}
    return str(page_of(model, populations, proportions(), **given | options))


def values(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> dict[str, Any]:
    """Return the contents of a page as plain values."""
    monkeypatch.setattr(pages, "render_page", lambda template, data, package: data)
    found: dict[str, Any] = page_of(*arguments, **options)
    return found


# ---------------------------------------------------------------- what it says


def test_the_shares_are_those_of_the_table() -> None:
    page = made_page()
    data = embedded(page)
    assert_allclose(data["proportions"], SHARES)
    assert_allclose(data["lower"], SHARES - WIDTH)
    assert_allclose(data["upper"], SHARES + WIDTH)
    assert [group["name"] for group in data["samples"]] == SAMPLES
    assert [group["cells"] for group in data["samples"]] == CELLS
    # A share below a tenth of a percent has digits too.
    assert all(shown in page for shown in ("59.0 – 61.0", "0.010 – 0.070"))
    assert made_page() == page


def test_populations_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, populations, X, y = merged()
    named_ones = populations.renamed({1: "T"})
    table = proportions(parts=(0, "T", 2))
    data = values(monkeypatch, model, named_ones, table, cells=(X, y))
    of_kernels = populations.of_kernels
    assert [part["kernels"] for part in data["populations"]] == [
        np.flatnonzero(of_kernels == g).tolist() for g in range(3)
    ]
    assert [part["label"] for part in data["populations"]] == ["0", "T", "2"]
    assert [part["name"] for part in data["populations"]] == ["population 0", "T", "population 2"]
    assert data["members"] == of_kernels.tolist()
    assert_allclose(np.array(data["tree"], dtype=float), populations.tree, rtol=1e-4)
    assert data["rows"]["populations"] == populations.predict(model, named(X)).tolist()
    assert [SAMPLES[place] for place in data["rows"]["samples"]] == y.tolist()
    weights = model.weights_ @ model.class_prior_
    for g, means in enumerate(data["profile"]["means"]):
        own = of_kernels == g
        expected = np.average(model.means_[own], axis=0, weights=weights[own])
        assert_allclose(np.array(means, dtype=float), expected, atol=0.051)
    # Shades show how far they are from all cells.
    means = np.array(data["profile"]["means"], dtype=float)
    deviations = (means - X.mean(axis=0)) / X.std(axis=0)
    assert_allclose(data["profile"]["deviations"], deviations, atol=0.03)
    assert data["rows"]["map"][0].startswith("principal component")
    assert len(data["rows"]["values"]) == len(data["mixture"]["features"] + data["mixture"]["axes"]) + 2
    assert data["profile"]["features"] == [HOSTILE, "CD3", "CD4", "CD8"]
    assert [(part["mean"], part["range"]) for part in data["populations"]] == [
        ("48.3", "20.0 – 60.0"),  # 48.25: scripts round halves up
        ("32.2", "20.0 – 42.0"),
        ("19.5", "0.040 – 60.0"),
    ]
    # The weights of the picture are those of all samples together.
    assert_allclose(np.ravel(data["mixture"]["weights"]), weights, atol=5e-6)
    # Of many cells some are drawn, each with its sample.
    monkeypatch.setattr("skmix.samples.plots._MAX_CELLS", 50)
    some = values(monkeypatch, model, named_ones, table, cells=(X, y))["rows"]
    places = [int(np.abs(X - row).sum(axis=1).argmin()) for row in np.array(some["values"])[:4].T]
    assert len(set(places)) == 50
    assert some["samples"] == [SAMPLES.index(y[place]) for place in places]
    assert some["populations"] == [data["rows"]["populations"][place] for place in places]


def test_profiles_are_of_the_markers_that_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four markers, and three axes: names, means and cells belong together."""
    monkeypatch.setitem(offered_planes.__globals__, "_MAX_FEATURES", 5)
    model, populations, X, y = merged()
    data = values(monkeypatch, model, populations, proportions(), cells=(X, y))
    kept = drawn_kernels(model).most_separate(2)
    assert kept != [0, 1]
    assert data["profile"]["features"] == [[HOSTILE, "CD3", "CD4", "CD8"][d] for d in kept]
    own = populations.of_kernels == 0
    weights = (model.weights_ @ model.class_prior_)[own]
    expected = np.average(model.means_[own], axis=0, weights=weights)[kept]
    assert_allclose(np.array(data["profile"]["means"][0], dtype=float), expected, atol=0.051)
    assert_allclose(data["rows"]["values"][:2], X[:, kept].T, rtol=1e-4)


def test_new_groups_are_compared_with_those_of_the_fit() -> None:
    """Their shares are not compared with each other's."""
    odd, shares = unusual("bone marrow"), 100 * np.array([[0.3, 0.3, 0.4], [0.5, 0.4, 0.1], [0.9, 0.1, 0.0]])
    odd.loc[3, ["population", "proportion", "usual_proportion"]] = [1, 0.2, 0.33]
    fitted = replace(proportions().take(np.arange(3)), proportions=shares / 100, names=np.array(list("abc")))
    page = made_page(unusual=odd, fitted=fitted)
    assert "population 1: 20.0 %, usually 33.0 %; population 2: 60.0 %, usually 10.0 %</td>" in page
    # Also where new samples have the names of those of the fit.
    X = np.repeat([[0.0], [9.0]], 200, axis=0) + np.random.RandomState(0).normal(size=(400, 1))
    y = np.tile(np.repeat(["a", "b", "c", "d", "e"], 8), 10)
    study = Study(SharedKernelMixture(2, init={"means": [[0.0], [9.0]]}).fit(X, y))
    new = study.apply_to(np.full((300, 1), 9.0) + X[:300] % 1.0, sample=np.repeat(["a", "b", "c"], 100))
    # Rounding decides which of the two kernels is the less usual one.
    assert re.search(r"kernel k[01]: (0|100\.0) %, usually 50\.0 %", new.to_html())


def test_kernels_without_populations(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, X, y = merged()
    table = proportions("kernel", range(6), np.pad(SHARES, ((0, 0), (0, 3))))
    data = values(monkeypatch, model, None, table, cells=(X, y))
    assert [part["label"] for part in data["populations"]] == ["k0", "k1", "k2", "k3", "k4", "k5"]
    assert data["tree"] is None
    assert data["rows"]["populations"] == model.predict(named(X)).tolist()
    # Markers may have other names than the model's features.
    data = values(monkeypatch, model, None, table, markers=["p", "q", "r", "s"])
    assert data["mixture"]["features"] == ["p", "q", "r", "s"]


def test_unusual_groups_are_marked_with_what_differs() -> None:
    page = made_page(unusual=unusual("bone marrow"))
    assert [group["unusual"] for group in embedded(page)["samples"]] == [False, False, False, True]
    assert "population 2: 60.0 %, usually 10.0 %" in page
    assert all(shown in page for shown in ("1.5e-09", "1.2e-08"))
    # The share is that of the table, whatever the rows were counted to.
    assert made_page(unusual=unusual("bone marrow").assign(proportion=0.7)) == page
    rows = made_page(unusual=unusual("bone marrow", p_composition=0.7, p_likelihood=1e-6, z_likelihood=-6.0))
    assert "-6.0 SD" in rows
    assert "usually" not in rows
    both = made_page(unusual=unusual("bone marrow", p_likelihood=1e-6, z_likelihood=6.0))
    assert all(shown in both for shown in ("usually 10.0 %", "+6.0 SD"))
    unknown = made_page(unusual=unusual("bone marrow", p_likelihood=np.nan, z_likelihood=np.nan))
    assert "<td>1.5e-09</td><td>–</td>" in unknown
    # The share that differs most from the median of the others, 10 %, is named beside the least probable one.
    table = unusual("bone marrow")
    table.loc[3, ["population", "proportion", "usual_proportion"]] = [1, 0.2, 0.33]
    two = made_page(unusual=table)
    assert "population 1: 20.0 %, usually 33.0 %; population 2: 60.0 %, usually 8.0 %" in two
    # It may be one that is smaller than usual: 30 % of the first group, where the others have 37 %.
    less = made_page(unusual=unusual(HOSTILE))
    assert "population 0: 60.0 %, usually 50.0 %; population 1: 30.0 %, usually 37.0 %" in less
    assert "usually" not in made_page(unusual=unusual()) + made_page(unusual=None)


def test_what_comes_from_data_is_escaped() -> None:
    page = made_page(made=[("files", HOSTILE)], notes=[HOSTILE, "c.fcs was left out."])
    assert "c.fcs was left out." in page
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")
    assert not re.search(r'(src|href)="(?!data:|#)', page)


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composition") / "page.html"
    files = ", ".join(n * "blood_" + f"{n}.fcs" for n in range(4, 12))
    path.write_text(made_page(made=[("files", files)], notes=[f"{files} were left out."]), encoding="utf-8")
    return path


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_page_loads_and_fits(chromium: Any, written: Path, size: tuple[int, int], scheme: str) -> None:
    visit(chromium, written, size, scheme)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 6
    assert wait_for(chromium, "return document.querySelectorAll('#map-plot .row').length") == 3
    assert chromium.get_log("browser") == []
    assert fits(chromium, size)
    shown = chromium.execute_script(
        "return [...document.querySelectorAll('#heat tbody tr')].map((r) => "
        "[...r.querySelectorAll('td')].map((c) => c.textContent))"
    )
    assert shown[0] == ["60.0", "30.0", "10.0"]
    assert shown[2] == ["58.0", "42.0", "<0.1"]
    # Every cell has its interval, also for those who cannot see the picture.
    told = chromium.execute_script(
        "return [...document.querySelectorAll('#heat td[data-i]')].map((c) => c.ariaLabel)"
    )
    assert len(told) == 12
    assert all(re.search(r"95 % interval: [\d.]+ to [\d.]+ %", each) for each in told)
    assert fetched(chromium) == []


def test_the_page_follows_its_controls(chromium: Any, written: Path) -> None:
    visit(chromium, written, DESKTOP)
    wait_for(chromium, "return document.querySelector('#plane-plot svg')")

    def lines() -> list[str]:
        names = chromium.find_elements("css selector", "#heat tbody th .name")
        return [each.get_attribute("textContent") for each in names]

    assert lines() == SAMPLES
    choose(chromium, "heat-order", "name")
    assert lines() == [HOSTILE, "blood 2", "blood 10", "bone marrow"]
    choose(chromium, "heat-order", "2")
    assert lines() == ["bone marrow", HOSTILE, "blood 2", "blood 10"]

    def drawn() -> str:
        return chromium.execute_script("return document.querySelector('#plane-plot').innerHTML")

    seen = {drawn()}
    for control, value in (("plane-across", "2"), ("plane-up", "3"), ("plane-sample", "3")):
        choose(chromium, control, value)
        seen.add(drawn())
    assert len(seen) == 4
    beside = chromium.find_elements("css selector", "#plane-proportions tbody tr")
    assert [row.text for row in beside] == ["0 20.0 17.0 – 23.0", "1 20.0 18.0 – 22.0", "2 60.0 59.0 – 61.0"]


def test_a_single_feature_and_a_single_group(chromium: Any, tmp_path: Path) -> None:
    X = np.random.RandomState(0).normal(size=(60, 1))
    model = SharedKernelMixture(1, random_state=0).fit(X)
    path = tmp_path / "one.html"
    Study(model).apply_to(X).to_html(path, title="one")
    visit(chromium, path, PHONE)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 1
    assert chromium.get_log("browser") == []
    assert fits(chromium, PHONE)


def test_conditions_are_drawn_as_boxes(chromium: Any, tmp_path: Path) -> None:
    model, populations, _, _ = merged()
    about = {"arm": [HOSTILE, "control"] * 2, "donor": ["a", "a", "b", "b"]}
    study = Study(model, populations, metadata=about)
    path, table = tmp_path / "conditions.html", study.compare("arm", pair="donor").table
    study.to_html(path, comparison=study.compare("arm", pair="donor"))
    visit(chromium, path, PHONE)
    captions = wait_for(
        chromium, "return [...document.querySelectorAll('#boxes figcaption')].map((each) => each.textContent)"
    )
    order = table.sort_values(["q_value", "p_value"])
    expected = zip(order["population"], order["q_value"], strict=True)
    assert captions == [f"{name}, q = {q:.2g}" for name, q in expected]
    # A point for each sample, two boxes, and a line for each pair.
    for shape, number in (("circle", 4), ("path.box", 2), ("path.joined", 2)):
        assert len(chromium.find_elements("css selector", f"#boxes {shape}")) == 3 * number
    assert chromium.get_log("browser") == []
    assert fetched(chromium) == []
    assert fits(chromium, PHONE)


def test_cuts_of_the_tree_recolour_the_page(chromium: Any, tmp_path: Path) -> None:
    model, populations, _, _ = merged()
    study, path = Study(model, populations), tmp_path / "cuts.html"
    study.to_html(path)
    visit(chromium, path, DESKTOP)
    assert wait_for(chromium, "return document.querySelector('#plane-plot svg')")

    def seen() -> tuple[str, int, list[list[float]], list[str]]:
        """Return what the control says, the colours of the tree and of kernels, and the proportions."""
        said = chromium.execute_script("return document.getElementById('cut-next').textContent")
        columns = chromium.execute_script("return document.querySelectorAll('#heat thead th').length")
        shares = chromium.execute_script("return report.proportions")
        colours = chromium.execute_script(
            "return [...document.querySelectorAll('#plane-plot .kernel')].map((k) => k.outerHTML)"
        )
        return said, columns, shares, colours

    first, n = seen(), len(populations)
    assert first[:2] == ("; ".join(study.cuts), n)
    chromium.execute_script("document.getElementById('coarser').click()")
    cut, coarser = study.recut(n - 1), seen()
    assert coarser[:2] == ("; ".join(cut.cuts), n - 1)
    assert_allclose(np.array(coarser[2]), 100.0 * cut.composition.proportions, atol=0.01)
    assert coarser[3] != first[3]
    chromium.execute_script("document.getElementById('finer').click()")
    assert seen() == first
    assert chromium.get_log("browser") == []
