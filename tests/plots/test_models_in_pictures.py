"""What pictures know of models, and the pictures that every model has: any covariance, M, K and L."""

from __future__ import annotations

import inspect
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from documented import assert_defaults
from matplotlib.figure import Figure
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, plots
from skmix.plots import draw_kernels, plot_confusion, plot_projections, plot_reliability, plot_weights
from skmix.plots._common import colour_of, dots, panels_for, round_of
from skmix.plots._models import groups_of, kernels_of

SETTINGS: dict[str, Any] = {"random_state": 0, "tol": 1e-2, "max_iter": 1000}


def model_of(means: Any, covariances: Any, weights: Any, classes: Any = ("a", "b")) -> SharedKernelMixture:
    """Return a model with these parameters, classes of equal priors."""
    model = SharedKernelMixture(len(means), covariance_type="full")
    model.weights_, model.means_ = np.array(weights, dtype=float), np.array(means, dtype=float)
    model.covariances_ = np.array(covariances, dtype=float)
    model.classes_ = np.array(classes)
    model.class_prior_ = np.full(len(classes), 1.0 / len(classes))
    return model


# ---------------------------------------------------------------- what is known of a model


def test_shares_of_classes_leave_the_background_out() -> None:
    model = model_of([[0.0], [1.0]], [[[1.0]], [[1.0]]], [[0.5, 0.5], [0.5, 0.5]])
    assert_allclose(kernels_of(model).shares, [0.5, 0.5])
    # Of ten rows, five in each class, one of the first class and five of the second are not background.
    model.background_weights_ = np.array([0.8, 0.0])
    assert_allclose(kernels_of(model).shares, [1 / 6, 5 / 6])


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "low_rank"])
def test_covariances_along_any_directions(covariance_type: str) -> None:
    X, y = load_iris(return_X_y=True)
    model = SharedKernelMixture(3, covariance_type=covariance_type, **SETTINGS).fit(X, y)
    stored = model.covariances_
    full = {
        "full": lambda k: stored[k],
        "tied": lambda k: stored,
        "diag": lambda k: np.diag(stored[k]),
        "spherical": lambda k: stored[k] * np.eye(4),
        "low_rank": lambda k: stored[k][:, :-1] @ stored[k][:, :-1].T + np.diag(stored[k][:, -1]),
    }[model.covariance_type_]
    kernels = kernels_of(model)
    directions = np.random.RandomState(0).normal(size=(2, 4))
    means, covariances = kernels.project(directions)
    _, chosen = kernels.project(np.eye(4)[[3, 1]])
    for k in range(3):
        assert_allclose(means[k], directions @ model.means_[k])
        assert_allclose(covariances[k], directions @ full(k) @ directions.T)
        assert_allclose(chosen[k], full(k)[np.ix_([3, 1], [3, 1])])


def test_groups_know_their_columns_and_names() -> None:
    pd = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    table = pd.DataFrame(X, columns=list("pqrs"))
    model = SharedKernelClassifier(
        3, feature_sets=[["s", "p"], ["q"]], priors=[0.5, 0.3, 0.2], **SETTINGS
    ).fit(table, y)
    first, second = groups_of(model)
    assert (first.names, first.columns) == (["s", "p"], [3, 0])
    assert (second.names, second.columns) == (["q"], [1])
    assert_allclose(second.prior, [0.5, 0.3, 0.2])
    # A single group of some columns is a model like any other.
    model = SharedKernelClassifier(3, feature_sets=[[3, 1]], **SETTINGS).fit(X, y)
    (panel,) = plot_projections(model, 0)
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("feature 3", "feature 1")


def test_two_kernels_differ_along_fishers_discriminant() -> None:
    random = np.random.RandomState(0)
    roots = random.normal(size=(2, 4, 4))
    covariances = roots @ np.swapaxes(roots, 1, 2) + np.eye(4)
    model = model_of(random.normal(size=(2, 4)), covariances, [[0.7, 0.1], [0.3, 0.9]])
    (direction,) = kernels_of(model).directions_of_difference(3)
    within = np.tensordot([0.4, 0.6], covariances, axes=1)
    fisher = np.linalg.solve(within, model.means_[0] - model.means_[1])
    cosine = direction @ fisher / np.linalg.norm(direction) / np.linalg.norm(fisher)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-3)
    assert direction @ within @ direction == pytest.approx(1.0, rel=1e-2)


def test_a_light_kernel_far_away_does_not_decide_what_is_shown() -> None:
    """Heavy kernels differ in the first feature; one of weight 0.001 is far away in the second."""
    means = [[-2.0, 0.0, 0.0], [2.0, 0.0, 0.1], [0.0, 1000.0, 0.0]]
    kernels = kernels_of(model_of(means, [np.eye(3)] * 3, [[0.899, 0.1], [0.1, 0.899], [0.001, 0.001]]))
    assert kernels.most_separate(1) == [0]
    first = kernels.directions_of_difference(2)[0]
    assert abs(first[0]) > 10 * np.abs(first[1:]).max()


def random_kernels(n_kernels: int, n_features: int, seed: int = 0) -> Any:
    random = np.random.RandomState(seed)
    roots = random.normal(size=(n_kernels, n_features, n_features))
    covariances = roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(n_features)
    weights = random.dirichlet(np.ones(n_kernels), size=2).T
    # Features of other units, some of which are near zero.
    means = 3.0 * random.normal(size=(n_kernels, n_features)) * 10.0 ** np.arange(n_features)
    units = np.outer(10.0 ** np.arange(n_features), 10.0 ** np.arange(n_features))
    return kernels_of(model_of(means, covariances * units, weights))


@pytest.mark.parametrize("seed", range(4))
def test_directions_have_unit_variance_and_a_positive_largest_entry(seed: int) -> None:
    kernels = random_kernels(4, 3, seed)
    weights = kernels.weights.mean(axis=1)
    within = np.tensordot(weights, kernels.stored, axes=1)
    centred = kernels.means - weights @ kernels.means
    directions = kernels.directions_of_difference(3)
    assert directions.shape == (3, 3)
    # Apart from a ridge of 1e-4.
    assert_allclose(directions @ within @ directions.T, np.eye(3), atol=0.01)
    # Entries are compared in standard deviations of the features, whatever their units.
    entries = directions * np.sqrt(weights @ centred**2 + np.diagonal(within))
    largest = np.abs(entries).argmax(axis=1)
    assert np.all(entries[np.arange(3), largest] > 0.0)
    # The kernels differ most along the first, where a kernel far away counts no more than its weight.
    white = centred @ directions.T
    bounded = white / np.sqrt(1.0 + (white**2).sum(axis=1, keepdims=True))
    spread = weights @ bounded**2
    assert np.all(np.diff(spread) < 0.0)
    assert_allclose((bounded * weights[:, None]).T @ bounded, np.diag(spread), atol=0.01)
    # As many as asked for, at most one less than kernels and as many as features.
    assert len(kernels.directions_of_difference(2)) == 2
    assert len(random_kernels(3, 3).directions_of_difference(4)) == 2
    assert len(random_kernels(6, 2).directions_of_difference(4)) == 2


def test_separation_by_the_book() -> None:
    kernels = random_kernels(4, 3)
    weights = kernels.weights.mean(axis=1)
    expected = []
    for d in range(3):
        variance = sum(w * c[d, d] for w, c in zip(weights, kernels.stored, strict=True))
        overall = sum(w * mean[d] for w, mean in zip(weights, kernels.means, strict=True))
        squares = [(mean[d] - overall) ** 2 / variance for mean in kernels.means]
        expected.append(sum(w * s / (1.0 + s) for w, s in zip(weights, squares, strict=True)))
    assert_allclose(kernels.separation(), expected)
    order = np.argsort(expected)[::-1]
    for n in (1, 2):
        assert kernels.most_separate(n) == sorted(order[:n].tolist())


def test_features_and_classes_are_found_by_name_and_number() -> None:
    kernels = random_kernels(2, 3)
    assert [kernels.feature(each) for each in ("feature 2", 0, np.int64(1))] == [2, 0, 1]
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"feature {wrong} does not exist: the model has 3"):
            kernels.feature(wrong)
    assert_allclose(kernels.weights_of("b"), kernels.weights[:, 1])
    with pytest.raises(ValueError, match="label='c' is not one of"):
        kernels.weights_of("c")


# ---------------------------------------------------------------- pictures of any model


def test_colours_begin_again_with_other_dashes() -> None:
    assert len({colour_of(number) for number in range(8)}) == 8
    assert colour_of(17) == colour_of(1)
    assert [round_of(number) for number in (0, 7, 8, 31, 32)] == [0, 0, 1, 3, 0]


def test_panels_fill_a_grid_row_by_row() -> None:
    panels = panels_for(5, None, n_columns=3, size=(2.0, 1.5))
    figure = panels[0].figure
    assert figure.axes == list(panels)
    assert figure.get_size_inches().tolist() == [6.0, 3.0]
    places = [panel.get_subplotspec() for panel in panels]
    assert [(p.rowspan.start, p.colspan.start) for p in places] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert len(panels_for(2, None, n_columns=5, size=(2.0, 1.5))[0].figure.axes) == 2


def test_many_dots_are_pixels_beneath_the_rest() -> None:
    panel = Figure().subplots()
    for n in (1000, 1001):
        dots(panel, np.column_stack([np.arange(n), -np.arange(n)]))
    few, many = panel.get_lines()
    assert (few.get_rasterized(), many.get_rasterized()) == (False, True)
    assert few.get_zorder() == many.get_zorder() == 0
    assert_allclose(few.get_ydata(), -few.get_xdata())


def test_thirty_features_show_the_eight_that_tell_most() -> None:
    random = np.random.RandomState(0)
    means = 0.01 * random.normal(size=(2, 30))
    telling = [1, 4, 9, 16, 17, 20, 25, 29]
    means[0, telling] += 5.0
    model = model_of(means, [np.eye(30)] * 2, np.eye(2))
    axes = plot_projections(model, "a")
    assert len(axes) == 28
    assert [panel.get_ylabel() for panel in axes[:7]] == [f"feature {d}" for d in telling[1:]]
    title = axes[0].figure.get_suptitle()
    assert title == "class a, 8 of 30 features: where the kernels differ most"
    # What was asked for is shown.
    assert len(plot_projections(model, "a", features=range(10), figure=Figure())) == 45


def test_kernels_of_one_feature_are_curves() -> None:
    model = model_of([[0.0, 9.0], [4.0, 9.0]], [np.eye(2)] * 2, [[0.25, 1.0], [0.75, 0.0]])
    axes = draw_kernels(model, "a", features=[0])
    *parts, total = axes.get_lines()
    across, up = total.get_data()
    assert len(parts) == 2
    # Four standard deviations around both, from nothing at the bottom.
    assert (across.min(), across.max(), axes.get_ylim()[0]) == (-4.0, 8.0, 0.0)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("feature 0", "density")
    # The larger mode is that of the heavier kernel, three quarters of a standard normal.
    assert across[up.argmax()] == pytest.approx(4.0, abs=0.05)
    assert up.max() == pytest.approx(0.75 / np.sqrt(2 * np.pi), rel=1e-3)
    one = model_of([[0.0], [3.0]], [np.eye(1)] * 2, np.eye(2))
    assert len(draw_kernels(one, axes=Figure().subplots()).get_lines()) == 3
    both = draw_kernels(model)
    assert (both.get_xlabel(), both.get_ylabel()) == ("feature 0", "feature 1")
    swapped = draw_kernels(model, features=[1, 0])
    assert (swapped.get_xlabel(), swapped.get_ylabel()) == ("feature 1", "feature 0")
    with pytest.raises(ValueError, match="one feature or in two, got 3"):
        draw_kernels(model, features=[0, 1, 0])


def test_rows_with_gaps_are_no_obstacle() -> None:
    X = np.random.RandomState(0).normal(size=(50, 1))
    model = GaussianMixture(2, random_state=0).fit(X)
    X[3] = np.nan
    (panel,) = plot_projections(model, X=X)
    # The bars are a density too, of the rows that are known.
    assert sum(bar.get_width() * bar.get_height() for bar in panel.patches) == pytest.approx(1.0)
    assert min(bar.get_x() for bar in panel.patches) == pytest.approx(np.nanmin(X))


def test_weights_are_written_where_they_are() -> None:
    weights = [[0.05, 0.7], [0.55, 0.3], [0.4, 0.0]]
    model = model_of(np.zeros((3, 2)), [np.eye(2)] * 3, weights)
    axes = plot_weights(model, order="number")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["k0", "k1", "k2"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("class", "kernel")
    assert_allclose(axes.get_images()[0].get_array(), np.sqrt(np.array(weights) / 0.7))
    # White on dark cells: those above about 0.4 of the largest.
    colours = {text.get_text(): text.get_color() for text in axes.texts}
    dark = dict.fromkeys(["0.70", "0.55", "0.30", "0.40"], "white")
    assert colours == {"0.05": "black", **dark}
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "0.05", (1, 0): "0.70", (0, 1): "0.55", (1, 1): "0.30", (0, 2): "0.40"}
    # Kernels of the first class first, the heaviest on top.
    by_class = plot_weights(model)
    assert [text.get_text() for text in by_class.get_yticklabels()] == ["k1", "k2", "k0"]
    with pytest.raises(ValueError, match="order='size' is not one of"):
        plot_weights(model, order="size")  # type: ignore[arg-type]


def test_weights_of_one_class_are_bars() -> None:
    weights = [[0.2], [0.5], [0.3]]
    axes = plot_weights(model_of(np.zeros((3, 1)), [np.eye(1)] * 3, weights, classes=[0]))
    assert [bar.get_width() for bar in axes.patches] == [0.5, 0.3, 0.2]
    middles = [bar.get_y() + bar.get_height() / 2 for bar in axes.patches]
    assert_allclose(middles, [0, 1, 2])
    low, high = axes.get_ylim()
    assert low > 2.0 > 0.0 > high
    assert (axes.get_xlabel(), axes.get_xlim()[0]) == ("weight", 0.0)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["k1", "k2", "k0"]


def test_hundreds_of_kernels_and_classes_are_shades_alone() -> None:
    weights = np.random.RandomState(0).dirichlet(np.full(200, 0.05), size=60).T
    model = model_of(np.zeros((200, 1)), [np.eye(1)] * 200, weights, classes=range(60))
    for axes in (plot_weights(model), plot_confusion(np.eye(60, dtype=int))):
        assert len(axes.texts) == 0
        assert max(len(axes.get_yticks()), len(axes.get_xticks())) <= 45
        assert max(axes.figure.get_size_inches()) < 12
        # Names are those of evenly spaced cells.
        names = [text.get_text().removeprefix("k") for text in axes.get_xticklabels()]
        assert names == [str(int(place)) for place in axes.get_xticks()]
        assert len(set(np.diff(axes.get_xticks()))) == 1


def test_long_names_of_classes_stand_upright() -> None:
    short = plot_confusion(np.eye(3, dtype=int), labels=["a", "b", "c"])
    long = plot_confusion(np.eye(3, dtype=int), labels=["a", "b", "a very long name"])
    assert {tick.get_rotation() for tick in short.get_xticklabels()} == {0.0}
    assert {tick.get_rotation() for tick in long.get_xticklabels()} == {90.0}


# ---------------------------------------------------------------- manners


def test_every_plot_takes_axes_and_says_what_it_does() -> None:
    for name in plots.__all__:
        function = getattr(plots, name)
        assert function.__doc__, name
        if name.startswith(("plot_", "draw_")):
            assert "axes" in inspect.signature(function).parameters, name


def test_given_axes_are_drawn_into_and_settings_left_alone() -> None:
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(**SETTINGS).fit(X, y)
    before = dict(mpl.rcParams)
    grid = Figure().subplots(2, 3).ravel()
    assert plot_weights(model, axes=grid[0]) is grid[0]
    assert plot_reliability(model, X, y, axes=grid[1]) is grid[1]
    assert draw_kernels(model, 0, grid[2]) is grid[2]
    assert plot_confusion(np.eye(3, dtype=int), axes=grid[3]) is grid[3]
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


def test_defaults_are_as_documented() -> None:
    assert_defaults(plots, 60)
