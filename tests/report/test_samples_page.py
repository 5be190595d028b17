"""The page of a study says what the study says, escapes what comes from data, and works in a browser."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import choose, embedded, fetched, fits, visit, wait_for
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture, Study, compose

HOSTILE = "</script><img src=x onerror=alert(1)>"
SAMPLES = [HOSTILE, "blood 10", "blood 2", "blood 3", "blood 4", "blood 5", "blood 6", "bone marrow"]
MARKERS = [HOSTILE, "CD3", "CD4", "CD8"]
DESKTOP, PHONE = (1400, 900), (390, 844)


@cache
def study() -> Study:
    """Return a study of six kernels in three populations, whose last sample is unusual."""
    random = np.random.default_rng(0)
    counts = [random.multinomial(200, [0.5, 0.3, 0.2]) for _ in SAMPLES[:-1]] + [np.array([10, 10, 180])]
    centres = 6.0 * np.random.RandomState(1).normal(size=(3, 4))
    X = np.concatenate([np.repeat(centres, own, axis=0) for own in counts])
    X += random.normal(size=X.shape)
    metadata = {"sample": SAMPLES, "arm": [HOSTILE, "control"] * 4, "donor": [0, 0, 1, 1, 2, 2, 3, 3]}
    found = compose(
        pd.DataFrame(X, columns=MARKERS),
        sample=np.repeat(np.array(SAMPLES, dtype=object), 200),
        n_kernels=6,
        n_populations=3,
        metadata=metadata,
        random_state=0,
    )
    return found.rename({1: "T"})


def percentages(name: str) -> np.ndarray:
    """Return a column of the table of proportions (samples, populations), in percent."""
    wide = study().proportions.pivot(index="sample", columns="population", values=name)
    return 100.0 * wide.loc[study().samples, study().populations.display_names].to_numpy()


def test_the_page_has_the_numbers_of_the_study() -> None:
    page = study().to_html()
    data, populations = embedded(page), study().populations
    for name, column in (("proportions", "proportion"), ("lower", "lower"), ("upper", "upper")):
        assert_allclose(data[name], percentages(column), atol=0.005)
    assert [sample["name"] for sample in data["samples"]] == study().samples
    assert [sample["cells"] for sample in data["samples"]] == [200] * 8
    assert [part["name"] for part in data["populations"]] == populations.display_names
    assert data["members"] == populations.of_kernels.tolist()
    assert_allclose(np.array(data["tree"], dtype=float), populations.tree, rtol=1e-4)
    weights = study().model.weights_ @ study().model.class_prior_
    assert_allclose(np.ravel(data["mixture"]["weights"]), weights, atol=5e-6)
    assert data["mixture"]["features"] == MARKERS
    unusual = [sample["name"] for sample in data["samples"] if sample["unusual"]]
    table = study().unusual()
    assert unusual == table["sample"][table["unusual"]].tolist() == ["bone marrow"]
    assert study().to_html() == page


def test_both_reasons_are_said_though_one_is_far_less_probable() -> None:
    X = study().model.means_[0] + np.random.default_rng(1).normal(size=(150, 4))
    X[:8] += 3.0
    new = study().apply_to(pd.DataFrame(X, columns=MARKERS))
    found = new.unusual().iloc[0]
    assert 100.0 * found["p_composition"] < found["p_likelihood"] < 1e-3
    page = new.to_html()
    assert f"its cells are less likely than those of other samples ({found['z_likelihood']:+.1f} SD)" in page
    assert re.search(r": 100(\.0)? %, usually [\d.]+ %", page)


def test_what_comes_from_data_is_escaped() -> None:
    page = study().to_html(title=HOSTILE)
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")
    assert not re.search(r'(src|href)="(?!data:|#)', page)


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composition") / "page.html"
    comparison = study().compare("arm", "control", pair="donor")
    study().to_html(path, title=HOSTILE, comparison=comparison)
    return path


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_the_page_loads_and_fits(chromium: Any, written: Path, size: tuple[int, int], scheme: str) -> None:
    visit(chromium, written, size, scheme)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 6
    assert wait_for(chromium, "return document.querySelectorAll('#boxes figcaption').length") == 3
    assert chromium.get_log("browser") == []
    assert fits(chromium, size)
    # Every cell has its interval, also for those who cannot see the picture.
    told = chromium.execute_script(
        "return [...document.querySelectorAll('#heat td[data-i]')].map((c) => c.ariaLabel)"
    )
    assert len(told) == 3 * len(SAMPLES)
    assert all(re.search(r"95 % interval: [\d.]+ to [\d.]+ %", each) for each in told)
    assert fetched(chromium) == []


def test_the_page_follows_its_controls(chromium: Any, written: Path) -> None:
    visit(chromium, written, DESKTOP)
    wait_for(chromium, "return document.querySelector('#plane-plot svg')")

    def lines() -> list[str]:
        names = chromium.find_elements("css selector", "#heat tbody th .name")
        return [each.get_attribute("textContent") for each in names]

    assert lines() == study().samples
    by_share = np.argsort(-percentages("proportion"), axis=0, kind="stable")
    for part in range(3):
        choose(chromium, "heat-order", str(part))
        assert lines() == [study().samples[place] for place in by_share[:, part]]

    def drawn() -> str:
        return chromium.execute_script("return document.querySelector('#plane-plot').innerHTML")

    seen = {drawn()}
    for control, value in (("plane-across", "2"), ("plane-up", "3"), ("plane-sample", "3")):
        choose(chromium, control, value)
        seen.add(drawn())
    assert len(seen) == 4


def test_a_single_feature_and_a_single_group(chromium: Any, tmp_path: Path) -> None:
    X = np.random.RandomState(0).normal(size=(60, 1))
    path = tmp_path / "one.html"
    Study(SharedKernelMixture(1, random_state=0).fit(X)).apply_to(X).to_html(path, title="one")
    visit(chromium, path, PHONE)
    assert wait_for(chromium, "return document.querySelectorAll('#plane-plot .kernel').length") == 1
    assert chromium.get_log("browser") == []
    assert fits(chromium, PHONE)


def test_cuts_of_the_tree_recolour_the_page(chromium: Any, tmp_path: Path) -> None:
    path, n = tmp_path / "cuts.html", len(study().populations)
    study().to_html(path)
    visit(chromium, path, DESKTOP)
    assert wait_for(chromium, "return document.querySelector('#plane-plot svg')")

    def seen() -> tuple[str, int, list[list[float]], str]:
        """Return what the control says, the number of columns, the proportions, and the kernels."""
        said = chromium.execute_script("return document.getElementById('cut-next').textContent")
        columns = chromium.execute_script("return document.querySelectorAll('#heat thead th').length")
        shares = chromium.execute_script("return report.proportions")
        kernels = chromium.execute_script("return document.getElementById('plane-plot').innerHTML")
        return said, columns, shares, kernels

    first = seen()
    assert first[:2] == ("; ".join(study().cuts), n)
    chromium.execute_script("document.getElementById('coarser').click()")
    cut, coarser = study().recut(n - 1), seen()
    assert coarser[:2] == ("; ".join(cut.cuts), n - 1)
    assert_allclose(np.array(coarser[2]), 100.0 * cut.composition.proportions, atol=0.01)
    assert coarser[3] != first[3]
    chromium.execute_script("document.getElementById('finer').click()")
    assert seen() == first
    assert chromium.get_log("browser") == []
    # The buttons are in one row, also beside larger numbers.
    chromium.execute_script("document.getElementById('cut-number').textContent = '100 populations'")
    where = "return ['coarser', 'finer'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    assert len(set(chromium.execute_script(where))) == 1
