"""Plots show every kernel, with the line its weight asks for, on the axes they were given."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture
from skmix.plots import draw_kernels, plot_projections, save_figure, weight_key

# One weight in each step of the paper's table 7, and what the table says about it.
WEIGHTS = np.array([0.55, 0.45, 0.35, 0.25, 0.15, 0.05, 0.005])
TABLE_7 = [
    (5.0, "black", "solid"),
    (4.0, "blue", "solid"),
    (3.0, "red", "solid"),
    (2.0, "magenta", "solid"),
    (1.0, "cyan", "solid"),
    (0.5, "green", "solid"),
    (0.5, "yellow", "dashed"),
]


def rows(n_features: int, labels: Any = ("a", "b", "c"), n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(0)
    y = np.repeat(np.array(labels), n // len(labels))
    return random.normal(size=(len(y), n_features)) + 3.0 * np.arange(len(y))[:, None] / len(y), y


def fitted(n_features: int = 2, **settings: Any) -> SharedKernelMixture:
    X, y = rows(n_features)
    return SharedKernelMixture(
        **{"n_kernels": 3, "random_state": 0, "tol": 1e-2, "max_iter": 1000} | settings
    ).fit(X, y)


def ellipses(axes: Axes) -> list[Ellipse]:
    return [patch for patch in axes.patches if isinstance(patch, Ellipse)]


def with_weights(weights: Any) -> SharedKernelMixture:
    """Return a model of one class with kernels at (0, 0), (1, 1), … and the given weights."""
    model = SharedKernelMixture(n_kernels=len(weights), covariance_type="full")
    model.weights_ = np.array(weights)[:, None]
    model.means_ = np.repeat(np.arange(len(weights))[:, None], 2, axis=1).astype(float)
    model.covariances_ = np.tile(np.eye(2), (len(weights), 1, 1))
    model.classes_, model.class_prior_ = np.array(["only"]), np.ones(1)
    return model


# ---------------------------------------------------------------- kernels


def test_every_kernel_is_an_ellipse_on_the_given_axes() -> None:
    _, axes = plt.subplots()
    assert draw_kernels(fitted(), "a", axes) is axes
    assert len(ellipses(axes)) == 3


def test_lines_follow_the_papers_table() -> None:
    _, axes = plt.subplots()
    draw_kernels(with_weights(WEIGHTS), "only", axes, style="paper")
    # Heaviest last, and so on top.
    for ellipse, (width, colour, dash) in zip(reversed(ellipses(axes)), TABLE_7, strict=True):
        assert ellipse.get_linewidth() == width
        assert same_color(ellipse.get_edgecolor(), colour)
        assert ellipse.get_linestyle() in (dash, {"solid": "-", "dashed": "--"}[dash])
        assert not ellipse.get_fill()


@pytest.mark.parametrize(("weight", "width"), [(0.0, 0.5), (0.01, 0.5), (0.1, 1.0), (0.5, 5.0), (1.0, 5.0)])
def test_a_step_begins_at_its_lower_edge(weight: float, width: float) -> None:
    _, axes = plt.subplots()
    draw_kernels(with_weights([weight]), "only", axes, style="paper")
    assert ellipses(axes)[0].get_linewidth() == width


def test_accessible_lines_grow_thicker_and_darker_with_the_weight() -> None:
    _, axes = plt.subplots()
    draw_kernels(with_weights(WEIGHTS), "only", axes, style="accessible")
    drawn = ellipses(axes)
    assert np.all(np.diff([ellipse.get_linewidth() for ellipse in drawn]) > 0)
    luminance = [np.dot(ellipse.get_edgecolor()[:3], [0.2126, 0.7152, 0.0722]) for ellipse in drawn]
    assert np.all(np.diff(luminance) < 0)


def test_the_outline_is_where_the_mahalanobis_distance_is_the_given_one() -> None:
    model = fitted(4)
    _, axes = plt.subplots()
    draw_kernels(model, "b", axes, features=(3, 1), n_std=1.5)
    chosen = np.ix_([3, 1], [3, 1])
    by_centre = {tuple(np.round(mean[[3, 1]], 9)): k for k, mean in enumerate(model.means_)}
    for ellipse in ellipses(axes):
        k = by_centre[tuple(np.round(ellipse.center, 9))]
        # Vertices are in display units; take them back to data units.
        outline = axes.transData.inverted().transform(ellipse.get_verts()) - ellipse.center
        precision = np.linalg.inv(model.covariances_[k][chosen])
        distance = np.sqrt(np.einsum("nd,de,ne->n", outline, precision, outline))
        assert_allclose(distance, 1.5, rtol=1e-2)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("estimator", [SharedKernelMixture, SharedKernelClassifier])
def test_all_models_and_covariance_types(estimator: Any, covariance_type: str) -> None:
    X, y = rows(3)
    model = estimator(4, covariance_type=covariance_type, random_state=0, tol=1e-2, max_iter=1000).fit(X, y)
    axes = plot_projections(model, "c")
    assert [len(ellipses(panel)) for panel in axes] == [4, 4, 4]
    for panel, pair in zip(axes, [[0, 1], [0, 2], [1, 2]], strict=True):
        centres = sorted(tuple(ellipse.center) for ellipse in ellipses(panel))
        assert_allclose(centres, sorted(map(tuple, model.means_[:, pair])))


def test_an_ordinary_mixture_has_one_class() -> None:
    X, _ = rows(2)
    axes = plot_projections(GaussianMixture(2, random_state=0).fit(X))
    assert len(ellipses(axes[0])) == 2


def test_without_a_label_weights_are_those_of_all_classes() -> None:
    model = with_weights([0.5, 0.5])
    model.weights_ = np.array([[1.0, 0.0], [0.0, 1.0]])
    model.classes_, model.class_prior_ = np.array([0, 1]), np.array([0.75, 0.25])
    _, axes = plt.subplots()
    draw_kernels(model, None, axes, style="paper")
    assert [ellipse.get_linewidth() for ellipse in ellipses(axes)] == [2.0, 5.0]


@pytest.mark.parametrize("labels", [("x", "yy"), (3, 7), (False, True), (-1.0, 1.0)])
def test_labels_of_any_type(labels: Any) -> None:
    X, y = rows(2, labels)
    model = SharedKernelMixture(2, random_state=0, tol=1e-2).fit(X, y)
    axes = plot_projections(model, labels[1], X, y)
    (shown,) = axes[0].get_lines()
    assert len(shown.get_xdata()) == np.sum(y == labels[1])


# ---------------------------------------------------------------- projections


@pytest.mark.parametrize(("n_features", "n_panels"), [(1, 1), (2, 1), (3, 3), (4, 6), (7, 21)])
def test_a_panel_for_every_pair_of_features(n_features: int, n_panels: int) -> None:
    axes = plot_projections(fitted(n_features), "a")
    assert axes.shape == (n_panels,)
    assert len(axes[0].figure.axes) == n_panels
    if n_features > 1:
        assert [len(ellipses(panel)) for panel in axes] == [3] * n_panels


def test_panels_come_in_the_order_of_the_pairs() -> None:
    X, y = rows(3)
    pd = pytest.importorskip("pandas")
    model = SharedKernelMixture(3, random_state=0, tol=1e-2).fit(pd.DataFrame(X, columns=["u", "v", "w"]), y)
    _, given = plt.subplots(1, 3)
    axes = plot_projections(model, "a", axes=given)
    labels = [(panel.get_xlabel(), panel.get_ylabel()) for panel in axes]
    assert labels == [("u", "v"), ("u", "w"), ("v", "w")]
    assert list(axes) == list(given)


def test_given_axes_are_used_and_no_figure_is_made() -> None:
    figure, axes = plt.subplots()
    (panel,) = plot_projections(fitted(2), "a", axes=axes)
    assert panel is axes
    assert plt.get_fignums() == [figure.number]
    assert figure.legends == []
    _, grid = plt.subplots(2, 3)
    assert list(plot_projections(fitted(4), "a", axes=grid)) == list(grid.ravel())


def test_features_can_be_chosen_by_index_or_name() -> None:
    X, y = rows(4)
    pd = pytest.importorskip("pandas")
    model = SharedKernelMixture(3, random_state=0, tol=1e-2).fit(pd.DataFrame(X, columns=list("abcd")), y)
    axes = plot_projections(model, "a", X, y, features=["d", 1])
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("d", "b")
    (shown,) = axes[0].get_lines()
    assert_allclose(shown.get_xdata(), X[y == "a", 3])
    assert_allclose(shown.get_ydata(), X[y == "a", 1])
    assert axes[0].figure.get_suptitle() == "class a"
    # Without a label, or without labels, all rows are shown.
    for label, labels in ((None, y), ("a", None)):
        (shown,) = plot_projections(model, label, X, labels, features=[0, 1])[0].get_lines()
        assert_allclose(np.column_stack(shown.get_data()), X[:, :2])


@pytest.mark.parametrize("with_rows", [False, True])
def test_one_feature_gives_the_density_and_its_parts(with_rows: bool) -> None:
    X, y = rows(1)
    model = fitted(1)
    axes = plot_projections(model, "b", *((X, y) if with_rows else ()))
    *parts, total = axes[0].get_lines()
    assert len(parts) == 3
    across, up = total.get_data()
    assert_allclose(up, np.exp(model.class_log_likelihood(across[:, None])[:, 1]), rtol=1e-10)
    assert_allclose(up, sum(part.get_ydata() for part in parts))
    assert np.trapezoid(up, across) == pytest.approx(1.0, abs=0.02)
    assert bool(axes[0].patches) is with_rows


def test_a_very_narrow_kernel_is_not_lost_between_points() -> None:
    model = with_weights([0.5, 0.5])
    model.covariances_ = np.array([np.eye(2), 1e-8 * np.eye(2)])
    *_, total = plot_projections(model, "only", features=[0])[0].get_lines()
    assert total.get_ydata().max() == pytest.approx(0.5 / (np.sqrt(2 * np.pi) * 1e-4), rel=1e-3)


def test_a_new_figure_has_a_key_to_the_lines_it_shows() -> None:
    axes = plot_projections(with_weights([0.05, 0.95]), "only")
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["≥ 0.5", "0.01 – 0.1"]


def test_the_whole_key_can_be_put_on_axes() -> None:
    _, axes = plt.subplots()
    assert weight_key(axes, style="accessible", loc="upper left") is axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        *("≥ 0.5", "0.4 – 0.5", "0.3 – 0.4", "0.2 – 0.3", "0.1 – 0.2", "0.01 – 0.1", "< 0.01"),
    ]
    assert legend.get_title().get_text() == "weight in the class"
    weight_key(axes, style="paper")
    lines = axes.get_legend().get_lines()
    for line, (width, colour, dash) in zip(lines, TABLE_7, strict=True):
        assert line.get_linewidth() == width
        assert same_color(line.get_color(), colour)
        assert line.get_linestyle() == {"solid": "-", "dashed": "--"}[dash]


# ---------------------------------------------------------------- bad input


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    X, y = rows(2)
    model = fitted(2)
    _, two = plt.subplots(1, 2)
    with pytest.raises(ValueError, match=r"label='z' is not one of .*\['a', 'b', 'c'\]"):
        plot_projections(model, "z")
    with pytest.raises(ValueError, match=r"1 axes are needed, got 2"):
        plot_projections(model, "a", axes=two)
    with pytest.raises(ValueError, match=r"X must have shape \(rows, 2\), got \(60, 1\)"):
        plot_projections(model, "a", X[:, :1], y)
    with pytest.raises(ValueError, match="X has 60 rows but y has 59 labels"):
        plot_projections(model, "a", X, y[:-1])
    with pytest.raises(ValueError, match="feature 2 does not exist: the model has 2"):
        plot_projections(model, "a", features=[0, 2])
    with pytest.raises(ValueError, match="feature -1 does not exist: the model has 2"):
        draw_kernels(model, "a", features=[0, -1])
    with pytest.raises(ValueError, match="feature 'height' is not one of"):
        plot_projections(model, "a", features=["height"])
    with pytest.raises(ValueError, match="features is empty"):
        plot_projections(model, "a", features=[])
    with pytest.raises(ValueError, match="style='pretty' is not one of 'paper', 'accessible'"):
        plot_projections(model, "a", style="pretty")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="not fitted yet"):
        plot_projections(SharedKernelMixture())


def test_a_figure_can_be_given_instead_of_axes() -> None:
    figure = Figure(layout="constrained")
    axes = plot_projections(fitted(3), "a", figure=figure)
    assert figure.axes == list(axes)
    assert len(figure.legends) == 1
    assert plt.get_fignums() == []
    with pytest.raises(ValueError, match="either axes or a figure, not both"):
        plot_projections(fitted(3), "a", axes=axes, figure=figure)


def test_panels_of_a_corner_share_their_features() -> None:
    axes = plot_projections(fitted(4), "a")
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for (panel, (i, j)), (other, (k, m)) in itertools.combinations(zip(axes, pairs, strict=True), 2):
        assert panel.get_shared_x_axes().joined(panel, other) == (i == k)
        assert panel.get_shared_y_axes().joined(panel, other) == (j == m)


def test_ellipses_lie_within_the_limits() -> None:
    model = fitted(2)
    axes = plot_projections(model, "a", n_std=3.0)[0]
    reach = 3.0 * np.sqrt(np.diagonal(model.covariances_, axis1=1, axis2=2))
    for (low, high), column in ((axes.get_xlim(), 0), (axes.get_ylim(), 1)):
        assert low < (model.means_ - reach)[:, column].min()
        assert high > (model.means_ + reach)[:, column].max()


def test_feature_sets_are_plotted_one_by_one() -> None:
    X, y = rows(3)
    model = SharedKernelClassifier(3, feature_sets=[[0, 1], [2]], random_state=0, tol=1e-2).fit(X, y)
    with pytest.raises(ValueError, match="2 feature sets"):
        plot_projections(model, "a")
    assert len(plot_projections(model.models_[0], "a")) == 1


@pytest.mark.slow
def test_saved_figures_are_repeatable_and_replace_the_old_file(tmp_path: Path) -> None:
    figures = [Figure(layout="constrained") for _ in range(2)]
    for figure in figures:
        plot_projections(fitted(3), "a", figure=figure)
    for name in ("a.png", "a.pdf"):
        (tmp_path / name).write_text("old")
        save_figure(figures[0], tmp_path / name)
        first = (tmp_path / name).read_bytes()
        save_figure(figures[1], tmp_path / name)
        assert (tmp_path / name).read_bytes() == first
        assert first.startswith({"a.png": b"\x89PNG", "a.pdf": b"%PDF"}[name])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pdf", "a.png"]
