"""Masked arrays: a masked value is missing, a masked label is none, and a masked weight is refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    compose,
    open_rows,
)
from skmix.features import Arcsinh, Logicle
from skmix.metrics import calibration_error
from skmix.report import cross_validate, evaluate

_RANDOM = np.random.default_rng(0)
Y = np.arange(60) % 2
X = _RANDOM.normal(size=(60, 2)) + 3.0 * Y[:, None]
IS_MASKED = np.arange(60) < 20
# What the mask hides is wrong.
LABELS = np.ma.array(np.where(IS_MASKED, 1 - Y, Y), mask=IS_MASKED)
UNLABELLED = np.where(IS_MASKED, None, Y)
WEIGHTS = np.ma.array(np.where(IS_MASKED, 100.0, 1.0), mask=IS_MASKED)
GAPS = np.where((np.arange(60)[:, None] % 4 == [0, 1]), np.nan, X)
ROWS = np.ma.array(np.where(np.isnan(GAPS), 1e4, X), mask=np.isnan(GAPS))


def classifier(**settings: Any) -> SharedKernelClassifier:
    return SharedKernelClassifier(2, random_state=0, **settings)


def mixture(**settings: Any) -> SharedKernelMixture:
    return SharedKernelMixture(2, random_state=0, **settings)


def classifier_search() -> SharedKernelClassifierCV:
    settings: dict[str, Any] = {"n_kernels": 2, "covariance_type": "full", "kernels": "shared", "cv": 2}
    return SharedKernelClassifierCV(classifier(), tune=False, n_members=1, random_state=0, **settings)


def mixture_search(criterion: str) -> SharedKernelMixtureCV:
    settings: dict[str, Any] = {"n_kernels": 2, "covariance_type": "full", "criterion": criterion}
    return SharedKernelMixtureCV(mixture(), random_state=0, **settings)


def dask_rows(*arrays: Any) -> tuple[Any, ...]:
    da = pytest.importorskip("dask.array", reason="needs the extra dask")
    return tuple(da.from_array(each, chunks=(16, *each.shape[1:]), asarray=False) for each in arrays)


def frame(rows: Any) -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(rows, columns=["a", "b"])


FITTED = classifier(reject_below=0.1).fit(X, Y)
GROUPED = mixture().fit(X, Y)


# ---------------------------------------------------------------- labels

FITS: dict[str, Callable[..., Any]] = {
    "classifier": lambda y, w: classifier().fit(X, y, w),
    "mixture": lambda y, w: mixture().fit(X, y, w),
    "stream of a classifier": lambda y, w: classifier().partial_fit(X, y, classes=[0, 1], sample_weight=w),
    "stream of a mixture": lambda y, w: mixture().partial_fit(X, y, sample_weight=w),
    "stream after a fit": lambda y, w: mixture().fit(X, Y).partial_fit(X, y, sample_weight=w),
    "classifier search": lambda y, w: classifier_search().fit(X, y, w).classifier_,
    "mixture search": lambda y, w: mixture_search("log_likelihood").fit(X, y, w).best_estimator_,
    "mixture search by BIC": lambda y, w: mixture_search("bic").fit(X, y, w).best_estimator_,
    "data frame": lambda y, w: mixture().fit(frame(X), y, w),
    "opened rows": lambda y, w: classifier().fit(open_rows(X, label=y, weight=w)),
    "opened rows, then labels": lambda y, w: classifier().fit(open_rows(X, chunk_rows=16), y, w),
}


@pytest.mark.parametrize("entry", FITS)
def test_a_masked_label_is_none(entry: str) -> None:
    found, expected = FITS[entry](LABELS, None), FITS[entry](UNLABELLED, None)
    assert_array_equal(found.class_count_, [20.0, 20.0] if "after" not in entry else [50.0, 50.0])
    assert_allclose(found.weights_, expected.weights_)
    assert_allclose(found.means_, expected.means_)


NEEDING_LABELS: dict[str, Callable[..., Any]] = {
    "score of a classifier": lambda y, w: FITTED.score(X, y, w),
    "score of a mixture": lambda y, w: GROUPED.score(X, y, w),
    "calibrate": lambda y, w: deepcopy(FITTED).calibrate(X, y, w),
    "tune": lambda y, w: deepcopy(FITTED).tune(X, y, max_iter=2, sample_weight=w),
}


@pytest.mark.parametrize("entry", NEEDING_LABELS)
def test_a_masked_label_is_refused_where_none_may_be_missing(entry: str) -> None:
    with pytest.raises(ValueError, match="20 of 60 rows have no label in y"):
        NEEDING_LABELS[entry](LABELS, None)


def test_an_evaluation_leaves_out_masked_labels() -> None:
    known = ~np.ma.getmaskarray(LABELS)
    with pytest.warns(UserWarning, match="20 of 60 rows have no label"):
        found = evaluate(FITTED, X, LABELS)
    expected = evaluate(FITTED, X[known], np.asarray(LABELS)[known])
    assert found.accuracy == expected.accuracy


@pytest.mark.parametrize(
    "call",
    [
        lambda y: GROUPED.score_samples(X, y),
        lambda y: GROUPED.impute(X, y),
        lambda y: GROUPED.predict(X, y=y),
        lambda y: GROUPED.predict_proba(X, y=y),
        lambda y: GROUPED.score_samples(open_rows(X), y),
        lambda y: deepcopy(FITTED).tune(X, Y, max_iter=2, validation=(X, y)),
    ],
)
def test_masked_groups_of_rows_are_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="20 of 60 rows have no label in "):
        call(LABELS)


def test_rows_with_a_masked_label_are_never_held_out() -> None:
    found, by_fold = cross_validate(classifier(), X, LABELS, folds=3)
    expected = cross_validate(classifier(), X, UNLABELLED, folds=3)
    assert (found.as_dict(), by_fold) == (expected[0].as_dict(), expected[1])
    assert found.n_rows == 40


def test_masked_samples_and_groups_of_a_search_are_refused() -> None:
    names = np.ma.array(np.array(["a", "b"])[Y], mask=IS_MASKED)
    with pytest.raises(ValueError, match="sample names no sample in 20 of 60 rows"):
        compose(X, sample=names)
    groups = np.ma.array(np.arange(60) % 5, mask=IS_MASKED)
    with pytest.raises(ValueError, match="groups has no value in 20 of 60 rows"):
        classifier_search().set_params(cv=None).fit(X, Y, groups=groups)


def test_masked_classes_of_a_stream_are_refused() -> None:
    with pytest.raises(ValueError, match=r"classes=\[0, 1, None\] has NaN or None"):
        classifier().partial_fit(X, Y, classes=np.ma.array([0, 1, 7], mask=[False, False, True]))


# ---------------------------------------------------------------- weights

WEIGHTED = {
    **FITS,
    **NEEDING_LABELS,
    "cross-validation": lambda y, w: cross_validate(classifier(), X, y, w, folds=2),
    "new class": lambda y, w: mixture().fit(X, y).add_class(X, 2, sample_weight=w),
    "weights of an opened source": lambda y, w: FITTED.score(open_rows(X), y, w),
    "drop-in": lambda y, w: GaussianMixture(2, random_state=0).fit(X, y, w),
    "drop-in that predicts": lambda y, w: GaussianMixture(2, random_state=0).fit_predict(X, y, w),
    "metric": lambda y, w: calibration_error(FITTED.predict_proba(X), y, sample_weight=w),
}


@pytest.mark.parametrize("entry", WEIGHTED)
def test_masked_weights_are_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"sample_weight is masked in 20 of 60 rows: .* 0 to leave the row"):
        WEIGHTED[entry](Y, WEIGHTS)


def test_weights_without_masked_ones_are_those_of_an_ordinary_array() -> None:
    weights = np.where(IS_MASKED, 2.0, 1.0)
    for fit in (FITS["mixture"], FITS["opened rows"]):
        found = fit(Y, np.ma.array(weights, mask=False))
        assert_array_equal(found.means_, fit(Y, weights).means_)


# ---------------------------------------------------------------- values

FITS_OF_ROWS: dict[str, Callable[..., Any]] = {
    "mixture": lambda rows: mixture().fit(rows, Y),
    "stream": lambda rows: mixture().partial_fit(rows, Y),
    "search": lambda rows: mixture_search("bic").fit(rows, Y).best_estimator_,
    "data frame": lambda rows: mixture().fit(frame(rows), Y),
    "opened rows": lambda rows: mixture().fit(open_rows(rows, chunk_rows=16), Y),
    "study": lambda rows: compose(rows, sample=Y, n_kernels=2, n_jobs=1).model,
    "drop-in": lambda rows: GaussianMixture(2, random_state=0).fit(rows),
}


# The samples of the study differ, as if one population shifted between them.
@pytest.mark.filterwarnings("ignore:Some populations may be one:UserWarning")
@pytest.mark.parametrize("entry", FITS_OF_ROWS)
def test_a_masked_value_is_missing(entry: str) -> None:
    assert_allclose(FITS_OF_ROWS[entry](ROWS).means_, FITS_OF_ROWS[entry](GAPS).means_)


def test_a_masked_value_of_new_rows_is_missing() -> None:
    drop_in = GaussianMixture(2, random_state=0).fit(X)
    for predict in (
        FITTED.predict_proba,
        FITTED.score_samples,
        GROUPED.impute,
        lambda rows: GROUPED.score_samples(open_rows(rows)),
        lambda rows: GROUPED.reasons(rows).in_words()["kernels"],
        drop_in.score_samples,
        drop_in.predict_proba,
        Arcsinh().transform,
        Logicle().inverse_transform,
    ):
        assert_array_equal(predict(ROWS), predict(GAPS))


def test_the_variational_drop_in_refuses_masked_values_as_missing_ones() -> None:
    for rows in (ROWS, GAPS):
        with pytest.raises(ValueError, match="contains NaN"):
            BayesianGaussianMixture(n_components=2).fit(rows)


# ---------------------------------------------------------------- Dask


@pytest.mark.slow
def test_masks_of_dask_collections() -> None:
    rows, masked, labels, weights = dask_rows(X, ROWS, LABELS, WEIGHTS)
    expected = mixture().fit(X, UNLABELLED)
    for y in (labels, LABELS):
        found = mixture().fit(rows, y)
        assert_array_equal(found.class_count_, expected.class_count_)
        with pytest.raises(ValueError, match=r"rows have no label|rows are unlabelled"):
            GROUPED.score_samples(rows, y).compute()
    for given in (weights, WEIGHTS):
        with pytest.raises(ValueError, match="sample_weight is masked in "):
            mixture().fit(rows, sample_weight=given)
    assert_allclose(GROUPED.score_samples(masked).compute(), GROUPED.score_samples(GAPS))
    assert_allclose(mixture().fit(masked, Y).class_count_, [30.0, 30.0])
    assert np.abs(mixture().fit(masked).means_).max() < 10.0
