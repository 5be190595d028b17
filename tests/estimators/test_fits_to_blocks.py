"""Estimators on rows in blocks: the same model as from rows in memory, or a clear refusal."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Listed
from models import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV, open_rows
from skmix.engine.compute.blocks import Block
from skmix.engine.sources import blocks
from skmix.engine.sources.blocks import BlockRows
from skmix.estimators import solving
from skmix.estimators.search import mixture as mixture_search
from skmix.io import Source

N_ROWS = 400


def make_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    names = np.array(["oak", "elm", "ash"])[random.integers(0, 3, N_ROWS)]
    place = {"oak": [0.0, 0.0, 1.0, 5.0], "elm": [2.0, 3.0, 0.0, 5.0], "ash": [5.0, 0.0, 0.0, 4.0]}
    X = np.array([place[name] for name in names]) + random.normal(size=(N_ROWS, 4))
    return X, names, random.uniform(0.5, 2.0, size=N_ROWS)


def cut(X, y=None, weights=None) -> Source:
    return open_rows(X, label=y, weight=weights, chunk_rows=90)


def assert_same(one, other) -> None:
    """The sample of so few rows is all of them, in order: even the starts are the same."""
    assert_same_fit(one, other)
    assert one.classes_.dtype == other.classes_.dtype
    assert sorted(vars(one)) == sorted(vars(other))


@pytest.mark.parametrize("init", ["class", "random_from_data", "uniform"])
def test_a_mixture_of_blocks_is_that_of_the_rows(init: str) -> None:
    X, y, weights = make_rows()
    model = SharedKernelMixture(4, init=init, n_init=2, random_state=0, tol=1e-3)
    here = model.fit(X, y, sample_weight=weights)
    assert_same(SharedKernelMixture(**model.get_params()).fit(cut(X, y, weights)), here)


def test_fits_to_many_rows_begin_on_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin nearly where they end, which is where other fits end too."""
    random = np.random.default_rng(0)
    y, weights = np.arange(6000) % 2, random.uniform(0.5, 2.0, size=6000)
    X = random.normal(size=(6000, 2)) * np.where(random.random((6000, 1)) < 0.3 + 0.4 * y[:, None], 5.0, 1.0)
    y[0] = 2  # has no row in a sample
    given = {"y": y, "sample_weight": weights}
    model = SharedKernelMixture(2, tol=1e-7, max_iter=2000, random_state=0, n_jobs=1)
    whole = clone(model).fit(X, **given)
    drawn = clone(model).set_params(init="random_from_data").fit(X, **given)
    monkeypatch.setattr(solving, "_WORTH_SAMPLING", 1 << 17)
    found = clone(model).fit(X, **given)
    assert_allclose(found.means_, whole.means_, atol=1e-2)
    assert_allclose(found.weights_, whole.weights_, atol=1e-2)
    short_of = [fit.log_likelihood_ - fit.log_likelihood_path_[0].sum() for fit in (found, whole)]
    assert short_of[0] < 0.5 * short_of[1]
    assert_array_equal(clone(model).set_params(n_jobs=2).fit(X, **given).means_, found.means_)
    assert_same(clone(model).fit(open_rows(X, label=y, weight=weights, chunk_rows=2000)), found)
    # Starts of other kinds stay as they are.
    again = clone(model).set_params(init="random_from_data").fit(X, **given)
    assert_array_equal(again.log_likelihood_path_, drawn.log_likelihood_path_)


@pytest.mark.parametrize("tail", [None, "t", ("t", 4.0)])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", ("low_rank", 1)])
def test_samples_lead_to_the_optimum_of_all_rows(
    covariance_type: str | tuple[str, int],
    tail: str | tuple[str, float] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 32-bit rows with weights, some of them without a label, for each structure and tail."""
    random = np.random.default_rng(1)
    place = np.arange(6000) % 3
    X = (random.normal(size=(6000, 3)) + 9.0 * np.eye(3)[place]).astype(np.float32)
    y = np.where(random.random(6000) < 0.3, np.nan, random.random(6000) < 0.2 + 0.3 * place)
    given = {"y": y, "sample_weight": random.uniform(0.1, 3.0, size=6000)}
    model = SharedKernelMixture(
        3, covariance_type=covariance_type, tail=tail, tol=1e-6, max_iter=1000, random_state=0
    )
    drawn: list[int] = []
    usual = solving.starts.draw_rows
    monkeypatch.setattr(solving.starts, "draw_rows", lambda *a: drawn.append(a[1]) or usual(*a))
    whole = clone(model).fit(X, **given)
    before = len(drawn)
    monkeypatch.setattr(solving, "_WORTH_SAMPLING", 1 << 17)
    found = clone(model).fit(X, **given)
    assert len(drawn) - before > before  # samples were drawn
    assert_allclose(found.log_likelihood_, whole.log_likelihood_, rtol=1e-6)
    assert_allclose(np.sort(found.means_, axis=0), np.sort(whole.means_, axis=0), atol=1e-2)


def test_samples_rule_no_kernel_out_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the rows of a small group are of a kernel that none of its rows in a sample is of."""
    monkeypatch.setattr(solving, "_WORTH_SAMPLING", 1 << 18)
    order = np.random.RandomState(0).permutation(6000)  # the first rows in it are the sample
    y, far = np.zeros(6000, dtype=np.int64), np.arange(6000) % 2
    y[order[:20]] = y[order[-20:]] = 1
    far[order[:20]], far[order[-20:]] = 0, 1
    X = np.random.default_rng(0).normal(size=(6000, 2)) + 50.0 * far[:, None]
    assert_allclose(SharedKernelMixture(2, random_state=0).fit(X, y).weights_[:, 1], 0.5, atol=1e-3)


def test_a_search_of_blocks_is_that_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = make_rows()
    prototype = SharedKernelMixture(tol=1e-3)
    search = SharedKernelMixtureCV(
        prototype, n_kernels=4, covariance_type="full", criterion="bic", random_state=0
    )
    here, there = clone(search).fit(X, y), clone(search).fit(cut(X, y))
    assert_same(there.best_estimator_, here.best_estimator_)
    assert there.best_score_ == pytest.approx(here.best_score_, rel=1e-9)
    assert there.n_features_in_ == X.shape[1]
    # By default, rows are held out only where all of them may be read into memory.
    search.set_params(criterion="auto")
    assert clone(search).fit(cut(X, y)).best_score_ == clone(search).fit(X, y).best_score_
    monkeypatch.setattr(mixture_search, "CACHED_BYTES", X.nbytes - 1)
    assert clone(search).fit(cut(X, y)).best_score_ == there.best_score_


def test_more_rows_than_a_sample_are_not_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weights = make_rows()
    monkeypatch.setattr(blocks, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(blocks, "_MOST_SAMPLED", 60)
    monkeypatch.setattr("skmix.estimators.decisions.novelty_threshold", None)
    model = SharedKernelClassifier(reject_below=0.3, outlier_label="?", random_state=0, tol=1e-3)
    model.fit(cut(X, y, weights))
    share = np.average(model.score_samples(X) < model.threshold_, weights=weights)
    assert share == pytest.approx(0.3, abs=0.1)


def test_a_sample_stands_for_rows_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than a sample keeps, starts come from it, and EM goes over all of them."""
    monkeypatch.setattr(blocks, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(blocks, "_MOST_SAMPLED", 60)
    random = np.random.default_rng(3)
    y = np.repeat([0, 1], [4500, 300])
    X = np.where(y[:, None] == 0, -3.0, 3.0) + random.normal(size=(len(y), 2))
    source = open_rows(X, label=y, chunk_rows=900)
    for init in ("class", "k-means"):
        model = SharedKernelMixture(2, init=init, random_state=0).fit(source)
        assert model.class_count_.tolist() == [4500, 300]
        order = np.argsort(model.means_[:, 0])
        expected = [X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)]
        assert np.allclose(model.means_[order], expected, atol=0.05)


def test_a_feature_that_the_sample_misses_has_its_mean_there() -> None:
    X = np.full((40_000, 2), np.nan)
    X[:, 0] = np.random.default_rng(0).normal(size=len(X))
    seen = np.setdiff1d(np.arange(len(X)), BlockRows(Listed([Block(X)])).summary.sample[1]["row"])[:4]
    X[seen, 1] = [1.0, 2.0, 3.0, 6.0]
    rows, _, _ = BlockRows(Listed([Block(X)])).start_rows()
    assert np.array_equal(np.unique(rows[:, 1]), [3.0])
    model = SharedKernelMixture(2, max_iter=1000, random_state=0).fit(open_rows(X))
    assert np.isfinite(model.means_).all()
