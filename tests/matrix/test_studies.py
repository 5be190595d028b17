"""Every setting of a study crossed with every other, against definitions written out in `study_cells`.

The cells are a covering array of all pairs of values. Each is fitted to convergence, described, compared,
labelled, saved, and fitted again in another order, with other names, split cells and an empty kernel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import study_cells as cells
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from study_cells import Cell, Cells, Errors, Sample, covering, fitted, name_of, quiet

from skmix import Study, load, open_rows
from skmix.samples import merge_kernels

Array = np.ndarray
DEFAULT = {name: values[0] for name, values in cells.FEATURES.items()}
CELLS = [
    *covering(),
    # Errors of kernels matter most for large samples of kernels that overlap.
    {**DEFAULT, "kernels": "overlapping", "sizes": "unequal"},
    {**DEFAULT, "kernels": "overlapping", "sizes": "unequal", "covariance": "tied", "asked": "new"},
    {**DEFAULT, "kernels": "overlapping", "sizes": "unequal", "shift": True, "freeze": True},
]
# Variances by Fisher information, relative to those expected: both are means over draws, and a study adds a
# little to what cells tell about kernels and weights.
SCALES = (0.7, 1.0, 1.3)


def metadata(names: Any, about: dict[str, Any]) -> pd.DataFrame:
    """Return what is known about samples, in another order than theirs."""
    return pd.DataFrame({"sample": names, **about}).iloc[::-1]


def by_sample(names: Any, about: dict[str, Any]) -> dict[Any, tuple[Any, ...]]:
    """Return what is known about each sample: arm, donor, batch and age."""
    return dict(zip(names, zip(*about.values(), strict=True), strict=True))


def opened(data: Cells) -> Any:
    """Return cells as a source."""
    return open_rows(data.X, label=data.y, weight=data.w)


def pivot(table: pd.DataFrame, column: str) -> Array:
    """Return a column of a table of proportions as an array (L, G), samples and populations as they occur."""
    n_samples = table["sample"].nunique()
    return table[column].to_numpy().reshape(n_samples, -1)


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_a_study(cell: Cell, tmp_path: Path) -> None:
    data = cells.make_cells(cell)
    model = fitted(cell, data)
    populations = merge_kernels(model, n_populations=2) if cell["parts"] == "populations" else None
    study = Study(model, populations, metadata=metadata(cells.NAMES, cells.ABOUT))
    members = np.eye(len(model.means_)) if populations is None else populations.members
    of_fit = fit_samples(cell, model, data)
    asked, samples, about = study, of_fit, by_sample(cells.NAMES, cells.ABOUT)
    if cell["asked"] == "loaded":
        with quiet():
            asked = comes_back(study, tmp_path / "study.skmix")
    elif cell["asked"] == "new":
        data = cells.make_cells(cell, new=True)
        known = metadata(cells.NEW_NAMES, cells.NEW_ABOUT)
        with quiet():
            asked = study.apply_to(opened(data), metadata=known)
        samples = {
            name: cells.expected_sample(cell, model, *data.of(name), new=True)
            for name in sorted(cells.NEW_NAMES)
        }
        about = by_sample(cells.NEW_NAMES, cells.NEW_ABOUT)
    assert asked.samples == sorted(samples)
    with quiet():
        variances = check_proportions(cell, asked, model, of_fit, samples, members)
        check_differences(cell, asked, samples, variances, members, about)
        check_unusual(cell, asked, model, data, samples, members)
        check_description(asked, model, samples, populations)
    check_labels(cell, asked, model, populations, data, samples, members, tmp_path / "labels.csv")


def fit_samples(cell: Cell, model: Any, data: Cells) -> dict[Any, Sample]:
    """Return the samples of a fit."""
    found = {}
    for j, name in enumerate(model.classes_.tolist()):
        shifts = model.group_shifts_[j] if cell["shift"] else None
        if cell["prior"] == "variational":
            # Kernels have a posterior too, so that counts are not those under their means.
            size, after = data.of(name)[1].sum(), model.weight_concentration_[:, j]
            assert_allclose(after.sum(), size + len(after) * cells.CONCENTRATION, rtol=1e-9)
            found[name] = Sample(size, after / after.sum(), after / after.sum(), shifts)
        else:
            found[name] = cells.expected_sample(cell, model, *data.of(name), shifts)
    return found


def comes_back(study: Study, path: Path) -> Study:
    """Save a study, and return that of the file, which says the same."""
    study.save(path)
    found: Study = load(path)
    for one, other in (
        (study.proportions, found.proportions),
        (study.unusual(), found.unusual()),
        (study.compare("arm", covariate="age").table, found.compare("arm", covariate="age").table),
    ):
        pd.testing.assert_frame_equal(one, other)
    assert study.describe() == found.describe()
    return found


def check_proportions(
    cell: Cell,
    study: Study,
    model: Any,
    of_fit: dict[Any, Sample],
    samples: dict[Any, Sample],
    members: Array,
) -> Array:
    """Check proportions, sizes and intervals; return the variances (L, G) of proportions as counted."""
    table, errors = study.proportions, Errors(cell, model, list(of_fit.values()))
    assert table.columns.tolist() == ["sample", study_noun(study), "proportion", "lower", "upper", "cells"]
    n_parts = members.shape[1]
    assert table["sample"].tolist() == np.repeat(study.samples, n_parts).tolist()
    assert table[study_noun(study)].tolist() == list(range(n_parts)) * len(samples)
    share, lower, upper, size = (pivot(table, name) for name in ("proportion", "lower", "upper", "cells"))
    assert_allclose(share.sum(axis=1), 1.0, rtol=1e-9)
    # New samples are fitted until a pass gains a thousandth of a nat.
    atol = 6e-3 if cell["asked"] == "new" else 1e-3
    variances = np.empty((len(samples), n_parts))
    for j, sample in enumerate(samples.values()):
        assert_allclose(size[j], sample.size, rtol=1e-9)
        assert_allclose(share[j], sample.weights @ members, atol=atol)
        variances[j] = errors.variances(sample, members)
        posterior = cell["prior"] == "variational"
        limits = cells.interval(
            sample.counted @ members, variances[j], sample.size, errors.prior, posterior=posterior
        )
        known = np.isfinite(lower[j])
        assert_array_equal(known, np.isfinite(upper[j]))
        assert cell["shift"] or known.all()
        # A prior that is learnt does not count, but its proportion is in the interval.
        low, high = np.minimum(limits[0], share[j]), np.maximum(limits[1], share[j])
        room = atol + 0.1 * (high - low) + 0.2 / sample.size
        assert np.all((np.abs(lower[j] - low) < room)[known]), (lower[j], low)
        assert np.all((np.abs(upper[j] - high) < room)[known]), (upper[j], high)
    assert table["cells"].dtype.kind == ("f" if cell["weighted"] else "i")
    return variances


def study_noun(study: Study) -> str:
    return "kernel" if study.populations is None else "population"


def check_differences(
    cell: Cell,
    study: Study,
    samples: dict[Any, Sample],
    variances: Array,
    members: Array,
    about: dict[Any, Any],
) -> None:
    """Check comparisons of every design, of sides given by a condition and by name."""
    shares = np.array([sample.counted for sample in samples.values()]) @ members
    arm, donor, batch, age = zip(*(about[name] for name in samples), strict=True)
    first = np.array(arm) == "a"
    atol = 6e-3 if cell["asked"] == "new" else 1e-3
    sides = [np.array(study.samples)[side].tolist() for side in (first, ~first)]
    designs: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"pair": "donor"}, {"pair": donor}),
        ({"covariate": "batch"}, {"covariate": batch}),
        ({"covariate": "age"}, {"covariate": age}),
    ]
    for names, values in designs:
        table = study.compare("arm", **names).table
        expected = [cells.compared(shares, variances * scale, first, **values) for scale in SCALES]
        check_comparison(table, expected, atol)
        assert_allclose(table["q_value"], stats.false_discovery_control(table["p_value"]), rtol=1e-9)
        # The sides may be given by name, in either order.
        same, back = study.compare(*sides, **names).table, study.compare(*sides[::-1], **names).table
        assert_allclose(same.iloc[:, 1:], table.iloc[:, 1:], rtol=1e-9, atol=1e-12)
        turned = table.iloc[:, [2, 1, 3, 5, 4, 6, 7]] * [1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0]
        assert_allclose(back.iloc[:, 1:], turned, rtol=1e-6, atol=1e-9)
    # Single samples stand for themselves.
    one = study.compare(study.samples[0], study.samples[-1]).table
    alone = np.arange(len(samples)) == 0
    pair = [0, len(samples) - 1]
    expected = [cells.compared(shares[pair], variances[pair] * scale, alone[pair]) for scale in SCALES]
    check_comparison(one, expected, atol)


def check_comparison(table: pd.DataFrame, expected: list[dict[str, Array]], atol: float) -> None:
    """Check means and differences, and that p-values and limits lie among those of the variances expected."""
    for name, column in (("proportion_a", "a"), ("proportion_b", "b"), ("difference", "difference")):
        assert_allclose(table[name], expected[0][column], atol=2 * atol)
    for name, room in (("p_value", 20 * atol), ("lower", 10 * atol), ("upper", 10 * atol)):
        found, values = table[name].to_numpy(), np.array([each[name] for each in expected])
        right = (values.min(axis=0) - room <= found) & (found <= values.max(axis=0) + room)
        assert right.all(), (name, found, values)


def check_unusual(
    cell: Cell, study: Study, model: Any, data: Cells, samples: dict[Any, Sample], members: Array
) -> None:
    """Check what `unusual` says about proportions and likelihoods, and how it adjusts p-values."""
    table, noun = study.unusual(), study_noun(study)
    assert table["sample"].tolist() == study.samples
    atol = 6e-3 if cell["asked"] == "new" else 1e-3
    for j, (name, sample) in enumerate(samples.items()):
        line = table.iloc[j]
        assert_allclose(line["cells"], sample.size)
        assert_allclose(line["proportion"], (sample.counted @ members)[line[noun]], atol=atol)
        X, w = data.of(name)
        if cell["prior"] == "variational" and cell["asked"] != "new":
            continue
        if cell["gaps"]:
            assert np.isnan(line["log_likelihood"])
            continue
        logs = np.log(np.exp(cells.log_densities(model, X, sample.shifts)) @ sample.weights)
        assert_allclose(line["log_likelihood"], np.average(logs, weights=w), atol=2e-3)
    likely = table["p_likelihood"].to_numpy()
    assert_allclose(likely, 2.0 * stats.norm.sf(table["z_likelihood"].abs()), rtol=1e-9)
    assert_array_equal(table["unusual"], table["p_adjusted"] <= 0.05)
    if not table["unusual"].any() and np.all(table["p_composition"] > 0.0):
        n_tests = members.shape[1] + (not cell["gaps"])
        least = np.fmin(table["p_composition"] / members.shape[1], likely)
        assert_allclose(table["p_adjusted"], cells.adjusted(np.minimum(n_tests * least, 1.0)), rtol=1e-9)
    assert_array_equal(table["reason"] == "", ~table["unusual"])


def check_description(study: Study, model: Any, samples: dict[Any, Sample], populations: Any) -> None:
    """Check that the description agrees with tables."""
    found = study.describe()
    sizes = [int(sample.size) for sample in samples.values()]
    assert (found["n_kernels"], found["n_cells"]) == (len(model.means_), sum(sizes))
    assert found["n_populations"] == (None if populations is None else len(populations))
    assert (found["converged"], found["n_iter"]) == (model.converged_, model.n_iter_)
    unusual = study.unusual()["unusual"].tolist()
    expected = zip(study.samples, sizes, unusual, strict=True)
    assert [tuple(each.values()) for each in found["samples"]] == list(expected)


def check_labels(
    cell: Cell,
    study: Study,
    model: Any,
    populations: Any,
    data: Cells,
    samples: dict[Any, Sample],
    members: Array,
    path: Path,
) -> None:
    """Check the labels of cells, a tenth of which are of a sample that nobody knows."""
    y = np.where(np.arange(len(data.y)) % 10 == 0, "unknown", data.y)
    study.label_cells(path, open_rows(data.X, label=y))
    table = pd.read_csv(path)
    assert_array_equal(table["sample"], y)
    found = table.filter(regex="^p_").to_numpy()
    expected = np.empty_like(found)
    for name in np.unique(y):
        own = [samples[name]] if name in samples else list(samples.values())
        expected[y == name] = cells.posteriors(model, data.X[y == name], own) @ members
    assert_allclose(found, expected, atol=2e-2 if cell["asked"] == "new" else 3e-3)
    assert_array_equal(table[study_noun(study)], found.argmax(axis=1))
    if cell["asked"] != "new":
        known = np.where(y == "unknown", study.samples[0], y)
        shares = model.predict_proba(data.X, y=known) @ members
        assert_allclose(found[y != "unknown"], shares[y != "unknown"], atol=1e-9)
        if populations is not None:
            assert_allclose(populations.predict_proba(model, data.X, y=known), shares, atol=1e-9)


# ---------------------------------------------------------------- what changes nothing


REORDERED = [
    *(cell for cell in CELLS if cell["asked"] == "fit"),
    DEFAULT,
    {**DEFAULT, "kernels": "overlapping", "covariance": "tied", "gaps": True, "parts": "populations"},
    {**DEFAULT, "sizes": "unequal", "covariance": "spherical", "parts": "populations"},
]


@pytest.mark.parametrize("cell", REORDERED, ids=name_of)
def test_order_names_split_cells_and_an_empty_kernel_change_nothing(cell: Cell) -> None:
    """Cells and kernels in another order, other names, each cell as two of a part of its weight."""
    data, chance = cells.make_cells(cell), np.random.default_rng(5)
    start = cells.start_of(cell)
    order = np.array([2, 0, 3, 1])
    renamed = {name: f"t{9 - int(name[1:])}" for name in cells.NAMES}
    w = np.ones(len(data.y)) if data.w is None else data.w
    names = np.array([renamed[name] for name in data.y.tolist()])
    halves = Cells(np.tile(data.X, (2, 1)), np.tile(names, 2), np.concatenate([0.3 * w, 0.7 * w]))
    other = {**start, "means": start["means"][order]}
    if cell["covariance"] != "tied":
        other["covariances"] = start["covariances"][order]
    # Priors give a part of each sample to a kernel without cells, and t kernels reach everywhere.
    has_empty = cell["prior"] == "none" and cell["tail"] == "none"
    if has_empty:
        order = np.append(order, 4)
        other["means"] = np.vstack([other["means"], [[1e5, -1e5]]])
        if cell["covariance"] != "tied":
            other["covariances"] = np.concatenate([other["covariances"], other["covariances"][:1]])
    models = fitted(cell, data), fitted(cell, halves.take(chance.permutation(len(halves.y))), other)
    about = metadata(cells.NAMES, cells.ABOUT)
    studies, members = [], []
    for model, known in zip(models, (about, about.replace({"sample": renamed})), strict=True):
        populations = merge_kernels(model, n_populations=2) if cell["parts"] == "populations" else None
        studies.append(Study(model, populations, metadata=known))
        members.append(np.eye(len(model.means_)) if populations is None else populations.members)
    places = [studies[1].samples.index(renamed[name]) for name in studies[0].samples]
    # The part that each part of the other study is.
    parts = np.argsort(order)[:4] if cell["parts"] == "kernels" else np.arange(2)
    if cell["parts"] == "populations":
        assert_array_equal(members[0], members[1][np.argsort(order)[:4]])
    with quiet():
        one, two = (study.proportions for study in studies)
        width = pivot(one, "upper") - pivot(one, "lower")
        for name, allowed in (("proportion", 0.0), ("cells", 0.0), ("lower", 0.08), ("upper", 0.08)):
            values = pivot(two, name)[places][:, parts]
            known = np.isfinite(width) & np.isfinite(values)
            assert cell["shift"] or known.all()
            room = 2e-3 + allowed * width
            assert np.all((np.abs(values - pivot(one, name)) < room)[known]), name
        assert_allclose(
            studies[1].unusual()["log_likelihood"].to_numpy()[places],
            studies[0].unusual()["log_likelihood"],
            atol=1e-3,
        )
        for design in ({}, {"pair": "donor"}, {"covariate": "batch"}):
            one, two = (study.compare("arm", **design).table for study in studies)
            names = ["proportion_a", "proportion_b", "difference"]
            assert_allclose(two[names].to_numpy()[parts], one[names], atol=2e-3)
            assert_allclose(two["p_value"].to_numpy()[parts], one["p_value"], atol=0.04)
