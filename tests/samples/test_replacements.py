"""Populations that replace each other or shift between samples: kept apart, said, and joined on demand."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelMixture, Study, compose, load
from skmix.samples import merge_kernels

MARKERS = ["CD3", "CD19", "CD4"]
NAMES = [f"s{j}" for j in range(8)]
ARMS = pd.DataFrame({"sample": NAMES, "arm": ["healthy"] * 4 + ["sick"] * 4})
SAID = "Some populations may be one that shifts between samples, or several that replace each other"


def cells(trace: int = 0, switched: Sequence[int] = (4, 5, 6, 7), seed: int = 0) -> pd.DataFrame:
    """Return cells of CD3⁻, and of CD3⁺ whose CD19 is six deviations higher in the samples that switched.

    Of the population that each sample lacks, it has `trace` cells.
    """
    random, frames = np.random.default_rng(seed), []
    for j, name in enumerate(NAMES):
        high = j in switched
        counts, levels = [400, 200, trace], [[0, 0, 0], [6, 6 * high, 0], [6, 6 * (not high), 0]]
        X = np.repeat(np.array(levels, dtype=float), counts, axis=0)
        X += random.normal(size=X.shape)
        frames.append(pd.DataFrame(X, columns=MARKERS).assign(sample=name))
    return pd.concat(frames)


def composed(table: pd.DataFrame, **settings: Any) -> tuple[Study, list[str]]:
    """Return a study, and what it warns of populations."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        study = compose(table, sample="sample", **{"n_kernels": 3, **settings})
    return study, [str(each.message) for each in caught]


@pytest.fixture(scope="module")
def switched() -> tuple[Study, list[str]]:
    return composed(cells(), metadata=ARMS, condition="arm")


def shares(study: Study) -> pd.DataFrame:
    return study.proportions.pivot(index="sample", columns="population", values="proportion")


@pytest.mark.parametrize("trace", [0, 15])
def test_a_switch_between_conditions_is_found(trace: int) -> None:
    """Also if every sample has some cells of what the others have."""
    study, said = composed(cells(trace), metadata=ARMS, condition="arm")
    found = study.compare().table.set_index("population")
    assert sorted(found.index) == ["CD3⁺ CD19⁺", "CD3⁺ CD19⁻", "CD3⁻"]
    truth = np.array([200.0, trace]) / (600 + trace)
    assert_allclose(found.loc["CD3⁺ CD19⁻", ["proportion_healthy", "proportion_sick"]], truth, atol=0.01)
    assert_allclose(
        found.loc["CD3⁺ CD19⁺", ["proportion_healthy", "proportion_sick"]], truth[::-1], atol=0.01
    )
    assert (found["q_value"] < 1e-4).tolist() == [name != "CD3⁻" for name in found.index]
    assert len(said) == 1


@pytest.mark.parametrize("trace", [0, 15])
def test_what_is_said_of_populations_that_replace_each_other_is_true(trace: int) -> None:
    """The share that is said is one of limits: the proportions, and those that were drawn, are below it."""
    study, (said,) = composed(cells(trace))
    assert said.startswith(SAID)
    assert study.describe()["warnings"] == [said]
    # The text leads to the call that joins them.
    first, second = re.findall(r"study\.join\('(.*)', '(.*)'\)", said)[0]
    assert {first, second} == {"CD3⁺ CD19⁺", "CD3⁺ CD19⁻"}
    assert f'--join "{first},{second}" of skmix compose' in said
    both = shares(study)[[first, second]].to_numpy()
    most = int(re.findall(r"one of the two has at most (\d+) % of its largest", said)[0]) / 100.0
    assert (both / both.max(axis=0)).min(axis=1).max() <= most
    assert trace / 200 <= most <= 0.2


def test_a_single_sample_with_both_tells_that_they_are_two() -> None:
    _, said = composed(cells(200))
    assert said == []
    _, said = composed(pd.concat([cells(), cells(switched=range(8))[:600]]))  # twice s0, with either
    assert said == []


def test_few_cells_say_nothing_of_replacement() -> None:
    """Three cells of a population in one sample, and three of another in the next, are no pattern."""
    random, centres = np.random.default_rng(0), np.array([[0.0, 0.0], [12.0, 0.0], [12.0, 5.5]])
    start = {"means": centres, "covariances": np.tile(np.eye(2), (3, 1, 1))}
    for rare, expected in ((3, 0), (60, 1)):
        kernels = np.concatenate([np.repeat([0, 1 + j % 2], [300, rare]) for j in range(4)])
        X = centres[kernels] + random.normal(size=(len(kernels), 2))
        model = SharedKernelMixture(3, init=start, freeze="kernels").fit(
            X, np.repeat(np.arange(4), 300 + rare)
        )
        assert len(Study(model, merge_kernels(model)).describe()["warnings"]) == expected


def test_populations_are_joined_on_demand(switched: tuple[Study, list[str]], tmp_path: Path) -> None:
    study, _ = switched
    joined = study.join("CD3+ CD19+", "CD3⁺ CD19⁻")
    assert len(study.populations) == 3
    assert joined.populations.display_names == ["CD3⁻", "CD3⁺"]
    assert_allclose(shares(joined)["CD3⁺"], shares(study)[["CD3⁺ CD19⁺", "CD3⁺ CD19⁻"]].sum(axis=1))
    assert joined.compare().table["p_value"].min() > 0.05
    told = joined.describe()
    assert told["joined"] == [["CD3⁺ CD19⁺", "CD3⁺ CD19⁻"]]
    assert told["warnings"] == []
    assert dict(joined.provenance())["joined"] == "CD3⁺ CD19⁺ + CD3⁺ CD19⁻"
    assert "joined" not in dict(study.provenance())
    # A finer cut divides them again.
    assert joined.recut(3).describe()["joined"] == []
    assert joined.recut(1).describe()["joined"] == told["joined"]
    # Rows of the one are those of the two.
    X = cells(seed=3)[MARKERS]
    one = joined.populations.predict(joined.model, X)
    assert_array_equal(one == 1, np.isin(study.populations.predict(study.model, X), [1, 2]))
    # Files and new samples keep them.
    joined.save(tmp_path / "joined.skmix")
    again = load(tmp_path / "joined.skmix")
    assert again.proportions.equals(joined.proportions)
    assert again.describe() == told
    new = again.apply_to(cells(seed=1), sample="sample")
    assert set(new.proportions["population"]) == {"CD3⁻", "CD3⁺"}
    assert new.describe()["joined"] == told["joined"]
    # So do samples that a study was applied to before.
    later = study.apply_to(cells(seed=1), sample="sample").join(1, 2)
    assert later.proportions.equals(new.proportions)
    study.save(tmp_path / "apart.skmix")
    assert load(tmp_path / "apart.skmix").join(1, 2).proportions["proportion"].tolist() == pytest.approx(
        joined.proportions["proportion"].tolist()
    )


def test_names_that_a_user_gave_stay() -> None:
    study = compose(cells(200), sample="sample", n_kernels=3)
    study.rename({"CD3-": "others"})
    assert study.join(1, 2).populations.display_names == ["others", "CD3⁺"]
    study.rename({1: "B cells"})
    assert study.join("B cells", 2).populations.display_names == ["others", "B cells"]
    study.rename({2: "T cells"})
    assert study.join("B cells", "T cells").populations.display_names == ["others", "CD3⁺"]
    assert study.join("others", "T cells").populations.display_names[1] == "B cells"
    bare = Study(study.model, merge_kernels(study.model))
    assert bare.join(0, 1).populations.display_names == [0, 1]
    assert re.fullmatch("at 2, population . and population . are one", bare.cuts[0])


def test_wrong_joins_are_refused(switched: tuple[Study, list[str]]) -> None:
    study, _ = switched
    for given in ((), (0,), (0, 0), ([0, 1],) * 2, ([0, 1], [2])):
        with pytest.raises(ValueError, match="join needs two populations or more, none of them twice"):
            study.join(*given)
    for given in ((0, "CD8+"), (0, 7), (-1, 0), (0, [1, 2]), ([[0, 1]],)):
        with pytest.raises(ValueError, match="There is no population"):
            study.join(*given)
    with pytest.raises(ValueError, match="no populations to join"):
        Study(study.model).join(0, 1)


def test_populations_do_not_know_the_condition(switched: tuple[Study, list[str]]) -> None:
    """Neither its absence nor any permutation changes anything but the comparison."""
    study, said = switched
    random = np.random.default_rng(0)
    for trial in range(4):
        metadata = ARMS.assign(arm=random.permutation(ARMS["arm"]))
        design = {"metadata": metadata, "condition": "arm"} if trial else {}
        other, again = composed(cells(), **design)
        assert again == said
        assert other.proportions.equals(study.proportions)
        assert_array_equal(other.populations.tree, study.populations.tree)
        assert other.populations.names == study.populations.names
