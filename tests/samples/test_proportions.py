"""Proportions in samples, their differences, and unusual samples."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from skmix import SharedKernelMixture, Study
from skmix._errors import ArgumentError
from skmix.samples import merge_kernels

CENTRES = np.array([0.0, 12.0, 24.0])
NAMES = np.array([f"patient {g}" for g in range(8)])


def groups_of(counts: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of kernels far apart, with these counts (L, K), and the names of their groups."""
    random, counts = np.random.default_rng(seed), np.asarray(counts)
    kernels = np.concatenate([np.repeat(np.arange(3), n) for n in counts])
    X = random.normal(size=(len(kernels), 2))
    X[:, 0] += CENTRES[kernels]
    return X, np.repeat(NAMES[: len(counts)], counts.sum(axis=1))


def start() -> dict[str, Any]:
    return {"means": np.stack([CENTRES, np.zeros(3)], axis=1), "covariances": np.tile(np.eye(2), (3, 1, 1))}


def fitted(counts: Any, **settings: Any) -> SharedKernelMixture:
    return SharedKernelMixture(3, init=start(), **{"weight_prior": None, **settings}).fit(*groups_of(counts))


COUNTS = [[60, 30, 10], [20, 20, 160], [5, 45, 0], [30, 30, 40]]


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_intervals_are_jeffreys_where_kernels_are_far_apart(covariance_type: str) -> None:
    X, y = groups_of(COUNTS)
    model = SharedKernelMixture(
        3, init={"means": start()["means"]}, weight_prior=None, covariance_type=covariance_type
    ).fit(X, y)
    table = Study(model).proportions
    assert table.columns.tolist() == ["sample", "kernel", "proportion", "lower", "upper", "cells"]
    sizes = np.sum(COUNTS, axis=1)
    assert_array_equal(table["cells"].to_numpy().reshape(4, 3)[:, 0], sizes)
    assert table["cells"].dtype == np.int64
    share, lower, upper = (table[c].to_numpy().reshape(4, 3) for c in ("proportion", "lower", "upper"))
    assert_allclose(share, np.array(COUNTS) / sizes[:, None], atol=1e-6)
    posterior = stats.beta(np.array(COUNTS) + 0.5, sizes[:, None] - np.array(COUNTS) + 0.5)
    assert_allclose(upper, posterior.ppf(0.975), atol=2.5e-3)
    seen = np.array(COUNTS) > 0
    assert_allclose(lower[seen], posterior.ppf(0.025)[seen], atol=2.5e-3)


DONORS, BATCHES = list("pqrspqrs"), ["x", "x", "y", "z", "x", "y", "y", "z"]
AGES = [31.5, 48.0, 52.0, 29.0, 60.0, 44.0, 37.0, 58.0]


@pytest.fixture(scope="module")
def varied() -> Study:
    """Return a study of eight samples that differ by more than chance, and what is known about them."""
    random = np.random.default_rng(1)
    model = fitted([random.multinomial(300, p) for p in random.dirichlet([5.0, 3.0, 2.0], size=8)])
    about = {"arm": list("aaaabbbb"), "donor": DONORS, "batch": BATCHES, "age": AGES}
    return Study(model, metadata=about)


def test_samples_of_a_pair_on_the_same_side_are_averaged(varied: Study) -> None:
    donors = [*"ppqr", *"pqrr"]
    shares = varied.model.weights_.T
    first = np.array([shares[:2].mean(axis=0), shares[2], shares[3]])
    second = np.array([shares[4], shares[5], shares[6:].mean(axis=0)])
    expected = stats.ttest_rel(*np.arcsin(np.sqrt([first, second])))
    about = {"arm": list("aaaabbbb"), "donor": donors}
    assert_allclose(varied.compare("arm", pair="donor", metadata=about).table["p_value"], expected.pvalue)


def test_the_average_of_two_samples_is_as_sure_as_a_sample_with_the_cells_of_both() -> None:
    """Pairs are alike, so that intervals are as wide as counting cells makes them."""
    kernels = np.tile(np.repeat([0, 1, 2], [30, 15, 5]), 12)
    X = np.random.default_rng(0).normal(size=(600, 2))
    X[:, 0] += CENTRES[kernels]
    sample, whole = np.repeat(np.arange(12), 50), np.repeat(np.arange(6), 100)
    about = {"arm": list("aaaaaabbbbbb"), "donor": list("ppqqrrppqqrr")}
    widths = []
    for y, every in ((sample, 1), (whole, 2)):
        model = SharedKernelMixture(3, init=start(), freeze="kernels").fit(X, y)
        chosen = {name: values[::every] for name, values in about.items()}
        table = Study(model, metadata=chosen).compare("arm", pair="donor").table
        widths.append(table["upper"] - table["lower"])
    assert_allclose(*widths, rtol=0.05)


@pytest.mark.parametrize("covariate", ["batch", "age", "number"])
def test_a_covariate_is_adjusted_for(varied: Study, covariate: str) -> None:
    angles, first = np.arcsin(np.sqrt(varied.model.weights_.T)), np.arange(8) < 5
    categories = np.array(BATCHES)[:, None] == ["x", "y"]
    columns = np.column_stack([np.ones(8), AGES if covariate == "age" else categories])
    # The F-test of the condition among two linear models is the t-test of its coefficient.
    designs = columns, np.column_stack([columns, first])
    (_, less, *_), (effects, more, *_) = (np.linalg.lstsq(design, angles, rcond=None) for design in designs)
    degrees = 7 - columns.shape[1]
    # Batches 1, 2 and 3 are categories and not numbers.
    about = {"age": AGES, "batch": BATCHES, "number": [ord(batch) for batch in BATCHES]}
    table = varied.compare("arm", covariate=covariate, metadata={"arm": list("aaaaabbb"), **about}).table
    assert_allclose(table["p_value"], stats.f(1, degrees).sf((less - more) / (more / degrees)))
    # The sides are compared at the average of the covariate.
    for side in (1.0, 0.0):
        expected = np.sin(np.append(columns.mean(axis=0), side) @ effects) ** 2
        assert_allclose(table["proportion_a" if side else "proportion_b"], expected)
    assert_allclose(table["difference"], table["proportion_a"] - table["proportion_b"])
    assert np.all((table["lower"] < table["difference"]) & (table["difference"] < table["upper"]))
    assert_array_equal(table["lower"] * table["upper"] > 0.0, table["p_value"] < 0.05)


def test_whole_numbers_are_categories_only_if_each_has_several_samples(varied: Study) -> None:
    """Ages of which two are equal are numbers: the same as with a fraction that says so."""
    ages = [30, 41, 30, 52, 60, 44, 41, 58]
    arm = {"arm": list("aaaaabbb")}
    whole, parts = (
        varied.compare("arm", covariate="age", metadata={**arm, "age": own}).table
        for own in (ages, [age + 0.5 for age in ages])
    )
    assert_allclose(whole.iloc[:, 1:], parts.iloc[:, 1:], rtol=1e-9)


def test_variances_are_at_least_half_of_what_counting_implies() -> None:
    """Samples of equal proportions: what is left are deviations of counts, by which intervals are scaled."""
    model = fitted([[600, 300, 100]] * 3 + [[500, 400, 100]] * 4)
    table = Study(model).compare(NAMES[:3], NAMES[3:7]).table
    a, b = np.array([0.6, 0.3, 0.1]), np.array([0.5, 0.4, 0.1])
    v, u = (0.5 * p * (1.0 - p) / 1000.0 / n for p, n in ((a, 3), (b, 4)))
    t = stats.t((v + u) ** 2 / (v**2 / 2.0 + u**2 / 3.0))
    assert_allclose(table["upper"] - table["difference"], t.ppf(0.975) * np.sqrt(v + u), rtol=0.05)
    assert_allclose(table["p_value"], 2.0 * t.sf(np.abs(a - b) / np.sqrt(v + u)), rtol=0.3, atol=1e-9)


def test_samples_without_a_partner_or_covariate_are_left_out(varied: Study) -> None:
    about = {"arm": list("aaaabbbb"), "donor": [*"pqr", None, *"pqst"], "age": [1.5, 2, None, 3, 4, 6, 5, 8]}
    with pytest.warns(UserWarning, match="Left out .* 'patient 2', .*, for lack of .* or of a partner"):
        table = varied.compare("arm", pair="donor", metadata=about).table
    expected = varied.compare(NAMES[[0, 1]], NAMES[[4, 5]], pair="donor", metadata=about).table
    assert_allclose(table["p_value"], expected["p_value"])
    with pytest.warns(UserWarning, match="'patient 2', for lack of a condition or of the covariate"):
        varied.compare("arm", covariate="age", metadata=about)
    with pytest.warns(UserWarning, match="'patient 7', for lack of a condition.$"):
        table = varied.compare("arm", metadata={"arm": [*"aaaabbb", None]}).table
    assert_allclose(table["p_value"], varied.compare(NAMES[:4], NAMES[4:7]).table["p_value"])


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"pair": list("pqrspqrt"), "covariate": "age"}, "cannot be combined: pairs are compared within"),
        ({"pair": list("pqrsptuv")}, r"pair='pair' has samples of both a and b in 1 pair\(s\): at least 2"),
        (
            {"covariate": list("xxyyzzww")},
            "confounded with the condition: each of its values is on one side",
        ),
        ({"covariate": [1.5] * 4 + [2.5] * 4}, "is confounded with the condition"),
        ({"covariate": list("xxxxxxxx")}, r"must have two values or more, but has \['x'\]"),
        ({"covariate": [None] * 8}, r"must have two values or more, but has \[\]"),
        ({"covariate": list("tuvwxyzx")}, "has 7 values in 8 samples: at least 9 samples are needed"),
        ({"covariate": [1.5, np.inf, *range(6)]}, "has an infinite value"),
    ],
)
def test_designs_that_cannot_be_compared_are_refused(varied: Study, about: Any, message: str) -> None:
    names = {argument: argument for argument in about}
    with pytest.raises(ArgumentError, match=message):
        varied.compare("arm", metadata={"arm": list("aaaabbbb"), **about}, **names)


def test_each_of_several_values_is_compared_with_the_reference(varied: Study) -> None:
    """Each pair of values by itself; p-values of a population are adjusted by Holm's method."""
    arms = np.array(list("aabbbccc"))
    found = varied.compare("arm", "b", metadata={"arm": arms})
    assert found.table.columns.tolist()[:5] == [
        *("kernel", "condition", "reference"),
        *("proportion", "proportion_reference"),
    ]
    alone = [varied.compare(NAMES[arms == value], NAMES[arms == "b"]).table for value in "ac"]
    for table, expected in zip(found.tables, alone, strict=True):
        columns = ["difference", "lower", "upper", "p_value"]
        assert_allclose(table[columns], expected[columns])
        assert_allclose(table["proportion_reference"], expected["proportion_b"])
    p_values = np.sort([table["p_value"] for table in alone], axis=0)
    holm = np.minimum(np.stack([2.0 * p_values[0], np.maximum(2.0 * p_values[0], p_values[1])]), 1.0)
    assert_allclose(np.sort([table["p_adjusted"] for table in found.tables], axis=0), holm)
    assert_allclose(found.table["q_value"], stats.false_discovery_control(found.table["p_adjusted"]))
    assert {name: places.tolist() for name, places in found.conditions.items()} == {
        "a": [0, 1],
        "c": [5, 6, 7],
        "b": [2, 3, 4],
    }
    labels = [text.get_text() for text in found.plot()[0].get_xticklabels()]
    assert labels == ["a", "c", "b"]
    page = varied.to_html(comparison=found)
    assert "a − b" in page
    assert "c − b" in page
    assert repr(found) == found.table.to_string(index=False)


def test_differences_are_of_counts_and_not_of_weights_that_a_prior_draws_together() -> None:
    random = np.random.default_rng(0)
    counts = np.array([random.multinomial(40, p) for p in random.dirichlet([10.0, 6.0, 4.0], size=8)])
    model = fitted(counts, weight_prior="hierarchical")
    assert np.ptp(model.weights_[1]) < 0.9 * np.ptp(counts[:, 1] / 40)
    table = Study(model).compare(NAMES[:4], NAMES[4:]).table
    a, b = counts[:4] / 40, counts[4:] / 40
    assert_allclose(table["difference"], a.mean(axis=0) - b.mean(axis=0), atol=1e-3)
    assert_allclose(table["p_value"], stats.ttest_ind(a, b, equal_var=False).pvalue, rtol=0.02)
    one = Study(model).compare(NAMES[0], NAMES[4]).table
    deviation = np.sqrt((a[0] * (1.0 - a[0]) + b[0] * (1.0 - b[0])) / 40)
    assert_allclose(one["upper"] - one["difference"], 1.96 * deviation, rtol=0.06)


def test_equal_counts_of_few_groups_are_no_discovery() -> None:
    # One row and none of 500, twice each: without rows to tell them apart, a variance of zero would.
    model = fitted([[300, 199, 1], [310, 189, 1], [305, 195, 0], [295, 205, 0]])
    study = Study(model, metadata={"donor": [1, 2, 1, 2], "batch": [1, 2, 1, 2]})
    for design in ({}, {"pair": "donor"}, {"covariate": "batch"}):
        assert study.compare(NAMES[:2], NAMES[2:4], **design).table["p_value"][2] > 0.1


@pytest.mark.parametrize("weight_prior", [None, "hierarchical"])
def test_a_group_of_one_population_alone_is_unusual(weight_prior: str | None) -> None:
    counts = np.random.default_rng(0).multinomial(400, [0.5, 0.3, 0.2], size=8)
    counts[5] = [0, 400, 0]
    model = fitted(counts, weight_prior=weight_prior)
    table = Study(model).unusual()
    assert table.loc[table["unusual"], "sample"].tolist() == ["patient 5"]
    assert table["p_composition"][5] < 1e-6
    assert ("is extended to it" in Study(model).to_html()) == (weight_prior is not None)
    # Groups of few rows, often of one population, are judged too, and not by chance.
    rows = groups_of([[2, 0, 0], [0, 3, 0], [3, 2, 0]], seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = Study(model).apply_to(rows[0], sample=rows[1]).unusual()
    assert (few["p_composition"] > 0.05).all()


def test_a_group_with_rows_apart_from_all_kernels_is_unusual() -> None:
    X, y = groups_of(np.tile([120, 60, 20], (8, 1)))
    X[:6, 1] += 30.0
    model = SharedKernelMixture(3, init=start(), weight_prior=None, covariance_prior=1000.0).fit(X, y)
    table = Study(model).unusual()
    assert table.loc[table["unusual"], "sample"].tolist() == ["patient 0"]
    assert table["z_likelihood"][0] < -5.0
    assert_allclose(table["p_likelihood"], 2.0 * stats.norm.sf(table["z_likelihood"].abs()), rtol=1e-9)
    expected = [model.score(X[y == name], y[y == name]) for name in NAMES]
    assert_allclose(table["log_likelihood"], expected, rtol=1e-3)


def test_new_groups_are_judged_by_those_of_the_fit() -> None:
    random = np.random.default_rng(0)
    model = fitted(random.multinomial(500, [0.6, 0.35, 0.05], size=8))
    before = model.weights_.copy()
    rows, names = groups_of([[300, 175, 25], [225, 175, 100], [300, 175, 25]], seed=1)
    rows[-20:, 1] += 30.0
    table = Study(model).apply_to(rows, sample=names).unusual()
    assert table["sample"].tolist() == NAMES[:3].tolist()
    assert table["unusual"].tolist() == [False, True, True]
    assert table["kernel"][1] == 2
    assert table["z_likelihood"][2] < -5.0
    assert_allclose(table["usual_proportion"][1], 0.05, atol=0.02)
    # One group is judged like several, but for their number.
    alone = Study(model).apply_to(rows[names == NAMES[1]]).unusual()
    same = ["kernel", "proportion", "usual_proportion", "p_composition", "log_likelihood", "z_likelihood"]
    assert_allclose(alone[same].iloc[0], table[same].iloc[1], rtol=1e-3)
    assert_array_equal(model.weights_, before)
    rows[0, 1] = np.nan
    assert Study(model).apply_to(rows, sample=names).unusual()["p_likelihood"].isna().all()
    # The same rows under other names are as usual as they were.
    counts = [*COUNTS, [20, 20, 60]]
    X, y = groups_of(counts)
    model = fitted(counts)
    old = Study(model).unusual()
    new = Study(model).apply_to(X, sample=np.char.add("new ", y)).unusual()
    assert_allclose(new["log_likelihood"], old["log_likelihood"], rtol=1e-3)
    # Here, they are compared with themselves as well.
    assert (new["z_likelihood"].abs() < old["z_likelihood"].abs() + 0.02).all()


def test_groups_of_five_rows_are_not_unusual_by_chance() -> None:
    random = np.random.default_rng(3)
    X = random.normal(size=(1000, 2))
    X[:, 0] += random.choice(CENTRES, size=1000, p=[0.8, 0.1, 0.1])
    model = SharedKernelMixture(3, init=start(), freeze="kernels").fit(X, np.repeat(np.arange(200), 5))
    z = Study(model).unusual()["z_likelihood"]
    # Both tails, not only the lower one, are those of a normal variate.
    assert_allclose(np.quantile(z, [0.05, 0.25, 0.75, 0.95]), [-1.645, -0.674, 0.674, 1.645], atol=0.3)
    assert z.abs().max() < 3.7


@pytest.mark.parametrize("merged", [False, True])
def test_one_part_has_all_rows_of_all_groups(merged: bool) -> None:
    X, y = groups_of(np.tile([20, 20, 10], (6, 1)))
    model, populations = SharedKernelMixture(1).fit(X, y), None
    if merged:
        model = SharedKernelMixture(3, init=start(), weight_prior=None).fit(X, y)
        populations = merge_kernels(model, n_populations=1)
    table = Study(model, populations).proportions
    assert_array_equal(table[["proportion", "lower", "upper"]], 1.0)
    table = Study(model, populations).compare(NAMES[:3], NAMES[3:6]).table
    assert_array_equal(table[["proportion_a", "proportion_b", "p_value", "q_value"]], 1.0)
    assert_array_equal(table[["difference", "lower", "upper"]], 0.0)
    one = Study(model, populations).compare(NAMES[0], NAMES[1]).table
    assert one["p_value"].tolist() == [1.0]
    table = Study(model, populations).unusual()
    assert_array_equal(table[["proportion", "usual_proportion", "p_composition"]], 1.0)
    # Likelihoods alone are looked at.
    assert_allclose(table["p_adjusted"].min(), min(1.0, 6.0 * table["p_likelihood"].min()))


def test_samples_of_kernels_that_overlap_are_judged_as_samples_of_fewer_rows() -> None:
    """Rows of known kernels far apart, as many as have Fisher's information, give nearly the same p-value."""
    random, n_rows, distance = np.random.default_rng(0), 2000, 1.5
    kernels = np.concatenate([random.random(n_rows) < share for share in (0.5, 0.48, 0.52, 0.5, 0.49, 0.66)])
    X = random.normal(size=(len(kernels), 1)) + distance * kernels[:, None]
    grid = np.linspace(-8.0, distance + 8.0, 20_001)
    first, second = stats.norm.pdf(grid), stats.norm.pdf(grid - distance)

    def judged(rows: np.ndarray, sizes: Any, far: float) -> tuple[Any, Any]:
        given = {"means": [[0.0], [far]], "covariances": np.ones((2, 1, 1))}
        y = np.repeat(np.arange(6), sizes)
        model = SharedKernelMixture(2, init=given, freeze="kernels", tol=1e-9, max_iter=5000).fit(rows, y)
        return model.weights_[0], Study(model).unusual()["p_composition"].to_numpy()

    shares, found = judged(X, n_rows, distance)
    mixed = shares[:, None] * first + (1.0 - shares[:, None]) * second
    known = n_rows * shares * (1.0 - shares) * np.trapezoid((first - second) ** 2 / mixed, grid)
    counts = np.rint(np.stack([shares, 1.0 - shares], axis=1) * known[:, None]).astype(int)
    assert counts.sum(axis=1).max() < n_rows / 2
    far = np.repeat(np.tile([0.0, 30.0], 6), counts.ravel())[:, None]
    _, expected = judged(far, counts.sum(axis=1), 30.0)
    assert_allclose(found, expected, rtol=0.25)


def test_what_is_wrong_is_said() -> None:
    model, (X, y) = fitted(COUNTS), groups_of(COUNTS)
    study = Study(model)
    for call, message in (
        (lambda: study.apply_to(X[:, :1], sample=y), "X has 1 features"),
        (lambda: study.apply_to(X, sample=y[:-1]), "X has 450 rows, but labels has shape"),
        (lambda: study.apply_to(X, sample=np.where(y == "patient 0", None, y)), "names no sample in 100 of"),
        (lambda: model.predict(X, y=y[:-1]), "X has 450 rows but y has 449 labels"),
        (lambda: model.predict_proba(X, y=np.repeat("y", 450)), r"y has labels .*: \['y'\]"),
        (lambda: study.compare("patient 0", ["patient 0", "patient 1"]).table, "both have 'patient 0'"),
        (lambda: study.compare([], "patient 0").table, "condition is empty"),
        (lambda: study.compare("patient 0", "nobody").table, "other has 'nobody', not among the samples"),
        (
            lambda: study.compare(["patient 1"] * 2, "patient 0").table,
            "condition has 'patient 1' more than once",
        ),
        (lambda: study.unusual(alpha=2.0), "alpha must be between 0 and 1"),
        (study.unusual, r"has 4 sample\(s\): at least 5 are needed"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for function in (Study, merge_kernels):
        with pytest.raises(NotFittedError):
            function(SharedKernelMixture())
        with pytest.raises(TypeError, match="must be a SharedKernelMixture, got a GaussianMixture"):
            function(GaussianMixture())


def shifted_groups() -> tuple[SharedKernelMixture, np.ndarray, np.ndarray, np.ndarray]:
    """Return kernels that overlap, known but for the shifts of groups, rows, groups and the true shares."""
    random, n_groups, n_rows = np.random.default_rng(0), 30, 400
    means, shares = np.array([[0.0, 0.0], [2.5, 0.0]]), random.uniform(0.2, 0.8, size=n_groups)
    kernels = (random.random((n_groups, n_rows)) > shares[:, None]).astype(int)
    shifts = 0.3 * random.normal(size=(n_groups, 2, 2))
    X = means[kernels] + shifts[np.arange(n_groups)[:, None], kernels]
    X = (X + random.normal(size=X.shape)).reshape(-1, 2)
    start = {"means": means, "covariances": np.tile(np.eye(2), (2, 1, 1))}
    y = np.repeat(np.arange(n_groups), n_rows)
    model = SharedKernelMixture(2, init=start, group_shift=0.3**-2, weight_prior=None).fit(
        X[: 5 * n_rows], y[: 5 * n_rows]
    )
    model.means_, model.covariances_ = means, start["covariances"]
    model.freeze = "kernels"
    return model, X, y, shares


def test_intervals_of_groups_with_shifts_cover() -> None:
    """Without the uncertainty of the shifts, 85 % would."""
    model, X, y, shares = shifted_groups()
    table = Study(model).apply_to(X, sample=y).proportions
    lower, upper = (table[name].to_numpy().reshape(-1, 2)[:, 0] for name in ("lower", "upper"))
    assert np.mean((lower <= shares) & (shares <= upper)) > 0.9
    # And they are not too wide: a third of the errors is more than a quarter of their length.
    share = table["proportion"].to_numpy().reshape(-1, 2)[:, 0]
    assert np.mean(np.abs(share - shares) > 0.25 * (upper - lower)) > 0.15


def test_shifts_of_kernels_that_overlap_leave_shares_without_intervals() -> None:
    model, _, _, _ = shifted_groups()
    known = Study(model).proportions
    model.freeze = None
    with pytest.warns(UserWarning, match="have no intervals: with group_shift"):
        table = Study(model).proportions
    assert table["lower"].isna().mean() > 0.5
    assert_array_equal(table["lower"].isna(), table["upper"].isna())
    assert_array_equal(table["proportion"], known["proportion"])


def test_intervals_beside_hierarchical_weights_cover() -> None:
    """Few groups hardly tell how much they differ: of the posterior's intervals, 78 % cover here."""
    covered = []
    for seed in range(8):
        random = np.random.default_rng(seed)
        shares = random.dirichlet([7.0, 7.0, 7.0], size=6)
        kernels = np.concatenate([random.choice(3, p=own, size=60) for own in shares])
        means = 6.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.9]])
        X, y = means[kernels] + random.normal(size=(360, 2)), np.repeat(np.arange(6), 60)
        start = {"means": means, "covariances": np.tile(np.eye(2), (3, 1, 1))}
        model = SharedKernelMixture(3, init=start, weight_prior="hierarchical", tol=1e-6).fit(X, y)
        table = Study(model).proportions
        covered.append((table["lower"] <= shares.ravel()) & (shares.ravel() <= table["upper"]))
        assert (table["lower"] <= table["proportion"]).all()
        assert (table["proportion"] <= table["upper"]).all()
    assert np.mean(covered) > 0.9


def test_a_value_with_too_few_samples_does_not_keep_others_from_being_compared(varied: Study) -> None:
    about = {"arm": list("aaabbbbc"), "donor": list("pqrpqrxp")}
    with pytest.warns() as warned:
        table = varied.compare("arm", "b", pair="donor", metadata=about).table
    assert "'c' of arm is not compared: " in str(warned[0].message)
    assert "in 1 pair(s)" in str(warned[0].message)
    with pytest.warns(UserWarning, match="Left out"):
        two = varied.compare("arm", "b", pair="donor", metadata={**about, "arm": [*"aaabbbb", None]})
    for name in ("difference", "lower", "upper", "p_value"):
        assert_allclose(table[name], two.table[name])


def test_pairs_of_three_values_name_only_samples_that_no_side_uses() -> None:
    random = np.random.default_rng(0)
    names = np.array([f"s{i:02}" for i in range(12)])
    X = random.normal(size=(1200, 1)) + 20.0 * (np.arange(1200) % 5 == 0)[:, None]
    model = SharedKernelMixture(init={"means": [[0.0], [20.0]]}, weight_prior=None).fit(
        X, np.repeat(names, 100)
    )
    study, arms = Study(model), list("ABC") * 4
    # Each sample of C has a partner in A or in B, and nobody has none.
    pairs = ["d1", "d3", "d1", "d2", "d4", "d2", "e1", "d5", "d3", "e2", "d6", "d4"]
    with pytest.warns(UserWarning, match="Left out of the comparison: 's06', 's09', 's07', 's10', for lack"):
        table = study.compare("arm", "C", pair="donor", metadata={"arm": arms, "donor": pairs}).table
    assert set(table["condition"]) == {"A", "B"}
    donors = ["d1", "x", "e1", "d2", "y", "e2", *"pqrstu"]
    with pytest.raises(ArgumentError, match=r"samples of both A and C in 0 pair\(s\)"):
        study.compare("arm", "C", pair="donor", metadata={"arm": arms, "donor": donors})
    with pytest.raises(ValueError, match="comparison is of other samples or populations"):
        Study(model, merge_kernels(model, n_populations=1)).to_html(
            comparison=study.compare(names[:3], names[3:6])
        )
