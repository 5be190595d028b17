"""Plots of models show every kernel with the line its weight asks for, on the axes they were given."""

from __future__ import annotations

import itertools
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.testing import assert_allclose
from scipy.stats import binomtest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    open_rows,
)
from skmix.model.kernel_sets import drawn_kernels
from skmix.plots import (
    draw_kernels,
    plot_projections,
    plot_reliability,
    plot_search,
)

SETTINGS: dict[str, Any] = {"random_state": 0, "tol": 1e-2, "max_iter": 1000}


def model_of(means: Any, covariances: Any, weights: Any, classes: Any = ("a", "b")) -> SharedKernelMixture:
    """Return a model with these parameters, classes of equal priors."""
    model = SharedKernelMixture(len(means), covariance_type="full")
    model.weights_, model.means_ = np.array(weights, dtype=float), np.array(means, dtype=float)
    model.covariances_ = np.array(covariances, dtype=float)
    model.n_features_in_, model.classes_ = model.means_.shape[1], np.array(classes)
    model.class_prior_ = np.full(len(classes), 1.0 / len(classes))
    return model


def rows(n_features: int, labels: Any = ("a", "b", "c"), n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    y = np.repeat(np.array(labels), n // len(labels))
    return random.normal(size=(len(y), n_features)) + 3.0 * np.arange(len(y))[:, None] / len(y), y


def fitted(n_features: int = 2, **settings: Any) -> SharedKernelMixture:
    return SharedKernelMixture(**{"n_kernels": 3} | SETTINGS | settings).fit(*rows(n_features))


def ellipses(axes: Axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


# ---------------------------------------------------------------- what is known of a model


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_kernels_of_any_structure_are_projected(covariance_type: str) -> None:
    model = fitted(4, covariance_type=covariance_type)
    stored = model.covariances_
    full = {
        "full": lambda k: stored[k],
        "tied": lambda k: stored,
        "diag": lambda k: np.diag(stored[k]),
        "spherical": lambda k: stored[k] * np.eye(4),
    }[model.covariance_type_]
    directions = np.random.RandomState(0).normal(size=(2, 4))
    means, covariances = drawn_kernels(model).project(directions)
    for k in range(3):
        assert_allclose(means[k], directions @ model.means_[k])
        assert_allclose(covariances[k], directions @ full(k) @ directions.T)


# ---------------------------------------------------------------- kernels


def test_the_outline_is_where_the_mahalanobis_distance_is_the_given_one() -> None:
    model = fitted(4)
    axes = draw_kernels(model, "b", features=(3, 1), n_std=1.5)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("feature 3", "feature 1")
    by_centre = {tuple(np.round(mean[[3, 1]], 9)): k for k, mean in enumerate(model.means_)}
    for ellipse in ellipses(axes):
        k = by_centre[tuple(np.round(ellipse.center, 9))]
        # Vertices are in display units; take them back to data units.
        vertices = axes.transData.inverted().transform(ellipse.get_verts())
        outline = vertices - ellipse.center
        precision = np.linalg.inv(model.covariances_[k][np.ix_([3, 1], [3, 1])])
        distance = np.sqrt(np.einsum("nd,de,ne->n", outline, precision, outline))
        assert_allclose(distance, 1.5, rtol=1e-2)
        # All of it is inside the axes.
        assert axes.viewLim.fully_containsx(vertices[:, 0].min())
        assert axes.viewLim.fully_containsx(vertices[:, 0].max())
        assert axes.viewLim.fully_containsy(vertices[:, 1].max())


def test_one_feature_gives_the_density_and_its_parts() -> None:
    model = model_of([[0.0, 9.0], [4.0, 9.0]], [np.eye(2)] * 2, [[0.25, 1.0], [0.75, 0.0]])
    axes = draw_kernels(model, "a", features=[0])
    *parts, total = axes.get_lines()
    across, up = total.get_data()
    assert_allclose(up, sum(part.get_ydata() for part in parts))
    # The larger mode is that of the heavier kernel, three quarters of a standard normal.
    assert across[up.argmax()] == pytest.approx(4.0, abs=0.05)
    assert up.max() == pytest.approx(0.75 / np.sqrt(2 * np.pi), rel=1e-3)
    # A very narrow kernel is not lost between points.
    model.covariances_[1] *= 1e-8
    *_, total = draw_kernels(model, "a", features=[0]).get_lines()
    assert total.get_ydata().max() == pytest.approx(0.75 / (np.sqrt(2 * np.pi) * 1e-4), rel=1e-3)
    # Rows are a histogram, which is a density of those without gaps.
    X = np.random.RandomState(0).normal(size=(50, 2))
    X[3] = np.nan
    (panel,) = plot_projections(model, X=X, features=[0])
    assert sum(bar.get_width() * bar.get_height() for bar in panel.patches) == pytest.approx(1.0)


# ---------------------------------------------------------------- projections


def test_a_panel_for_every_pair_of_features() -> None:
    X, y = rows(4)
    model = SharedKernelClassifier(3, **SETTINGS).fit(pd.DataFrame(X, columns=list("uvwx")), y)
    pairs = list(itertools.combinations(range(4), 2))
    axes = plot_projections(model, "c", X, y)
    assert len(axes[0].figure.axes) == len(axes) == len(pairs)
    for panel, pair in zip(axes, pairs, strict=True):
        centres = sorted(tuple(ellipse.center) for ellipse in ellipses(panel))
        assert_allclose(centres, sorted(map(tuple, model.means_[:, pair])))
        (shown,) = panel.get_lines()
        assert_allclose(np.column_stack(shown.get_data()), X[y == "c"][:, pair])
    # Without a label, or without labels, all rows are shown; features are chosen by name or number.
    for label, labels in ((None, y), ("a", None)):
        (panel,) = plot_projections(model, label, X, labels, features=["x", 1])
        assert (panel.get_xlabel(), panel.get_ylabel()) == ("x", "v")
        assert_allclose(np.column_stack(panel.get_lines()[0].get_data()), X[:, [3, 1]])


# ---------------------------------------------------------------- classifiers


def curves(axes: Any) -> list[np.ndarray]:
    """Return the points of each curve of a reliability plot."""
    return [c.lines[0].get_xydata() for c in axes.containers if c.get_label()[0] != "_"]


def test_reliability_is_the_share_of_correct_rows() -> None:
    random = np.random.default_rng(0)
    y = random.choice(["a", "b", "c"], size=400)
    X = np.searchsorted(["a", "b", "c"], y)[:, None] * 1.5 + random.normal(size=(400, 2))

    def expected(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        probabilities = model.predict_proba(X)
        sure, right = probabilities.max(axis=1), model.predict(X) == y
        own = [np.minimum((10 * sure).astype(int), 9) == each for each in range(10)]
        own = [each for each in own if each.any()]
        points = np.array([(sure[each].mean(), right[each].mean()) for each in own])
        return points, np.array([each.sum() for each in own]), np.array([right[each].sum() for each in own])

    model = SharedKernelClassifier(random_state=0, max_iter=500).fit(X[:200], y[:200])
    axes = plot_reliability(model, X, y)
    points, counts, right = expected(model)
    assert_allclose(curves(axes)[0], points, rtol=1e-12)
    bars = axes.containers[0].lines[2][0].get_segments()
    for bar, n, k in zip(bars, counts, right, strict=True):
        interval = binomtest(int(k), int(n)).proportion_ci(method="wilson")
        assert_allclose(bar[:, 1], interval)
    assert_allclose([bar.get_height() for bar in axes.patches], counts / 400)
    error = np.abs(points[:, 0] - points[:, 1]) @ counts / 400
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"classifier: {error:.3f}"]
    # After calibration, both curves.
    before = curves(axes)[0]
    found = curves(plot_reliability(model.calibrate(X[200:], y[200:]), X, y))
    assert_allclose(found[0], before, rtol=1e-9)
    assert_allclose(found[1], expected(model)[0])
    assert len(curves(plot_reliability(LogisticRegression().fit(X, y), X, y))) == 1
    assert_allclose(curves(plot_reliability(model, open_rows(X, label=y)))[1], found[1])


# ---------------------------------------------------------------- manners


def test_given_axes_are_drawn_into_and_settings_left_alone() -> None:
    X, y = rows(2)
    model = SharedKernelClassifier(**SETTINGS).fit(X, y)
    before = dict(mpl.rcParams)
    grid = Figure().subplots(2, 2).ravel()
    assert plot_reliability(model, X, y, axes=grid[0]) is grid[0]
    assert draw_kernels(model, "a", grid[1]) is grid[1]
    assert list(plot_projections(model, "a", axes=grid[3])) == [grid[3]]
    figure = Figure(layout="constrained")
    assert list(plot_projections(model, "a", figure=figure)) == figure.axes
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


def test_what_cannot_be_drawn_is_refused() -> None:
    X, y = rows(2)
    model = fitted(2)
    classifier = SharedKernelClassifier(random_state=0, max_iter=500).fit(X, y)
    alone = SharedKernelClassifierCV(random_state=0).fit(np.array([[0.0], [10.0]]), [0, 1])
    other = SharedKernelMixtureCV(n_kernels=1, covariance_type="full").fit(np.arange(9.0)[:, None])
    two = Figure().subplots(1, 2)
    for call, message in (
        (lambda: plot_projections(model, "z"), r"label='z' is not one of .*\['a', 'b', 'c'\]"),
        (lambda: plot_projections(model, "a", axes=two), "1 axes are needed, got 2"),
        (lambda: plot_projections(model, axes=two, figure=Figure()), "axes cannot be combined with figure"),
        (lambda: plot_projections(model, "a", X[:, :1], y), "X has 1 features"),
        (lambda: plot_projections(model, "a", X, y[:-1]), "X has 60 rows but y has 59 labels"),
        (lambda: draw_kernels(model, features=[0, -1]), "features has column -1, but X has 2"),
        (lambda: draw_kernels(model, features=[0, 1, 0]), "one or two, got 3"),
        (lambda: plot_projections(model, features=[]), "features is empty"),
        (lambda: plot_reliability(classifier, X, y[:3]), "X has 60 rows but y has 3 labels"),
        (lambda: plot_search(alone), "no candidate has a score"),
        (lambda: plot_search(other), "needs a SharedKernelClassifierCV, got SharedKernelMixtureCV"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        plot_projections(SharedKernelMixture())
