"""What must not change a model: the scale of all weights, and the order of kernels, rows and classes.

Weights count rows only where a prior is worth some rows, in variational fits, and in stopping rules that
count rows. Elsewhere their proportions alone matter, in fits, streams and tuning. Weights are scaled by
powers of two, which round nothing, so that starts and passes stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matrix_cells as cells
import numpy as np
import pytest
from libraries import torch
from numpy.testing import assert_allclose

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, load, open_rows

Array = Any
STRUCTURES = ("full", "tied", "diag", "spherical")
N_ROWS, N_BATCH = 360, 90
ATTRIBUTES = ("weights_", "means_", "covariances_", "class_prior_", "kernel_degrees_")


def make_rows() -> dict[str, Array]:
    """Return rows of overlapping clusters: complete, with gaps, labels, some labels, and weights."""
    random = np.random.default_rng(0)
    codes = random.choice(3, N_ROWS, p=[0.6, 0.3, 0.1])
    centres = 3.0 * random.normal(size=(6, 3))
    X = random.normal(size=(N_ROWS, 3)) + centres[random.integers(0, 2, N_ROWS) + 2 * codes]
    missing = random.uniform(size=X.shape) < 0.2
    missing[missing.all(axis=1), 0] = False
    missing[:30] = False
    return {
        "X": X,
        "gaps": np.where(missing, np.nan, X),
        "y": np.array([10.0, 20.0, 30.0])[codes],
        "some": np.where(random.uniform(size=N_ROWS) < 0.4, np.nan, np.array([10.0, 20.0, 30.0])[codes]),
        # Some rows have no weight.
        "w": random.integers(0, 5, N_ROWS) / 2.0,
    }


ROWS = make_rows()
SETTINGS: dict[str, Any] = {"covariance_prior": None, "tol": 1e-4, "max_iter": 30, "random_state": 0}


def mixture(**settings: Any) -> Any:
    # A learnt prior of the weights counts rows.
    return SharedKernelMixture(**{"n_kernels": 4, "weight_prior": None, **SETTINGS, **settings})


def classifier(**settings: Any) -> Any:
    return SharedKernelClassifier(**{"n_kernels": 4, **SETTINGS, **settings})


def stream(model: Any, X: Array, y: Array, w: Array) -> Any:
    for a in range(0, len(X), N_BATCH):
        cut = slice(a, a + N_BATCH)
        classes = None if a else [10.0, 20.0, 30.0]
        model.partial_fit(X[cut], y[cut], classes=classes, sample_weight=w[cut])
    return model


def add_batch(model: Any, w: Array, y: str = "y") -> Any:
    return model.partial_fit(ROWS["X"][:50] + 0.5, ROWS[y][:50], sample_weight=w[:50])


def fit_to_file(w: Array, folder: Path) -> Any:
    np.save(folder / "rows.npy", ROWS["gaps"])
    return mixture().fit(open_rows(folder / "rows.npy", label=ROWS["y"], weight=w))


def fit_on_device(w: Array, settings: dict[str, Any]) -> Any:
    if torch is None:
        pytest.skip("PyTorch, an optional extra, is not installed")
    return mixture(**settings).fit(torch.as_tensor(ROWS["X"]), ROWS["y"], w)


def go_on_from_file(w: Array, folder: Path) -> Any:
    mixture().fit(ROWS["X"], ROWS["some"], w).save(folder / "model.skmix")
    return add_batch(load(folder / "model.skmix"), w)


def fit_and_tune(w: Array, structure: str, validation: float | None) -> Any:
    model = classifier(covariance_type=structure).fit(ROWS["X"], ROWS["y"], w)
    return model.tune(ROWS["X"], ROWS["y"], sample_weight=w, validation=validation, max_iter=4)


def fit_and_add(w: Array) -> Any:
    model = mixture().fit(ROWS["X"], ROWS["some"], w)
    return add_batch(model.add_class(ROWS["X"][100:150], 40.0, sample_weight=w[100:150]), w)


def calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield everything that learns from weights, as functions of the weights and a folder."""
    for kind in STRUCTURES:
        for rows in ("X", "gaps"):
            yield (
                f"fit,{kind},{rows}",
                lambda w, _, kind=kind, rows=rows: mixture(covariance_type=kind).fit(
                    ROWS[rows], ROWS["y"], w
                ),
            )
    for kind in STRUCTURES:
        for rows, y in (("X", "y"), ("gaps", "y"), ("X", "some")):
            yield (
                f"stream,{kind},{rows},{y}",
                lambda w, _, kind=kind, rows=rows, y=y: stream(
                    mixture(covariance_type=kind), ROWS[rows], ROWS[y], w
                ),
            )
            yield (
                f"fit+stream,{kind},{rows},{y}",
                lambda w, _, kind=kind, rows=rows, y=y: add_batch(
                    mixture(covariance_type=kind).fit(ROWS[rows], ROWS[y], w), w, y
                ),
            )
        for validation in (None, 0.2):
            yield (
                f"tune,{kind},{validation}",
                lambda w, _, kind=kind, validation=validation: fit_and_tune(w, kind, validation),
            )
    # The prior that fits choose counts rows; streams have none but the weak one of their start.
    yield (
        "stream,auto",
        lambda w, _: stream(mixture(covariance_prior="auto"), ROWS["X"], ROWS["y"], w),
    )
    sets = {"feature_sets": [[0], [1, 2]]}
    for name, model in (
        ("no labels", lambda w: mixture().fit(ROWS["X"], None, w)),
        ("some labels", lambda w: mixture().fit(ROWS["gaps"], ROWS["some"], w)),
        ("t", lambda w: mixture(tail="t").fit(ROWS["X"], ROWS["y"], w)),
        ("t,gaps", lambda w: mixture(tail="t").fit(ROWS["gaps"], ROWS["y"], w)),
        ("class starts", lambda w: mixture(init="class").fit(ROWS["X"], ROWS["y"], w)),
        ("chosen kernels", lambda w: classifier(n_kernels=None).fit(ROWS["X"], ROWS["y"], w)),
        ("float32", lambda w: mixture().fit(ROWS["X"].astype(np.float32), ROWS["y"], w)),
        ("calibrate", lambda w: classifier().fit(ROWS["X"], ROWS["y"], w).calibrate(ROWS["X"], ROWS["y"], w)),
        ("sets", lambda w: classifier(**sets).fit(ROWS["gaps"], ROWS["y"], w)),
        ("sets,stream", lambda w: add_batch(classifier(**sets).fit(ROWS["gaps"], ROWS["y"], w), w)),
        ("added class", fit_and_add),
        ("device", lambda w: fit_on_device(w, {})),
        ("single", lambda w: fit_on_device(w, {"device": "cpu:0/float32"})),
        ("drop-in", lambda w: GaussianMixture(4, random_state=0).fit(ROWS["X"], sample_weight=w)),
    ):
        yield name, lambda w, _, model=model: model(w)
    yield "file", fit_to_file
    yield "model file", go_on_from_file


CALLS = dict(calls())


@pytest.mark.parametrize("name", CALLS)
def test_only_the_proportions_of_weights_matter(name: str, tmp_path: Path) -> None:
    call, w = CALLS[name], ROWS["w"]
    with cells.quiet():
        wanted = call(w, tmp_path)
        for scale in (2.0**-10, 2.0**7):
            found = call(scale * w, tmp_path)
            assert getattr(found, "temperature_", None) == getattr(wanted, "temperature_", None)
            for one, other in zip(cells.mixtures(found), cells.mixtures(wanted), strict=True):
                for attribute in set(ATTRIBUTES) & vars(other).keys():
                    after, before = (cells.host(getattr(each, attribute)) for each in (one, other))
                    assert_allclose(after, before, rtol=1e-10, atol=1e-12, err_msg=attribute)
                for attribute in {"class_count_", "expected_count_"} & vars(other).keys():
                    after, before = (cells.host(getattr(each, attribute)) for each in (one, other))
                    assert_allclose(after, scale * before, rtol=1e-10, err_msg=attribute)


@pytest.mark.parametrize(
    "fit",
    [
        lambda w: SharedKernelClassifier(random_state=0).fit(ROWS["X"], ROWS["y"], w),
        lambda w: SharedKernelMixture(4, random_state=0).fit(ROWS["X"], ROWS["y"], w),
        lambda w: (
            SharedKernelMixture(4, random_state=0)
            .fit(ROWS["X"], ROWS["y"], w)
            .add_class(ROWS["X"][:40], 40.0, sample_weight=w[:40])
        ),
        # Few rows for each kernel: a first fit finds the prior.
        lambda w: SharedKernelMixture(12, random_state=0).fit(ROWS["X"][:90], None, w[:90]),
        lambda w: SharedKernelMixture(12, covariance_prior="weak", random_state=0).fit(
            ROWS["gaps"][:90], None, w[:90]
        ),
    ],
)
def test_defaults_take_light_rows_as_whole_rows(fit: Callable[[Array], Any]) -> None:
    w = ROWS["w"] / 2.0  # all are one on average, or less
    whole = fit(w)
    for scale in (0.5, 2.0**-10):
        light = fit(scale * w)
        assert_allclose(light.covariance_prior_[0], scale * whole.covariance_prior_[0], rtol=1e-10)
        for attribute in ("weights_", "means_", "covariances_"):
            assert_allclose(getattr(light, attribute), getattr(whole, attribute), rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- orders


def start_of(order: Array) -> dict[str, Array]:
    """Return a start of four kernels in an order; one has no weight in any class."""
    random = np.random.default_rng(5)
    means = ROWS["X"][random.choice(N_ROWS, 4, replace=False)]
    weights = random.dirichlet(np.full(4, 3.0), size=3).T
    weights[1] = 0.0
    weights /= weights.sum(axis=0)
    return {"means": means[order], "weights": weights[order]}


def then_nothing(model: Any, _rows: Array) -> Any:
    return model


def then_stream(model: Any, rows: Array) -> Any:
    X, y, w = rows
    return model.partial_fit(X[:60], y[:60], sample_weight=w[:60])


def then_add(model: Any, rows: Array) -> Any:
    X, _, w = rows
    return model.add_class(X[:60], 5.0, sample_weight=w[:60])


def then_tune(model: Any, rows: Array) -> Any:
    X, y, w = rows
    return model.tune(X, y, sample_weight=w, validation=None, max_iter=3)


CHAINS: dict[str, tuple[dict[str, Any], str, str, Callable[[Any, Any], Any]]] = {
    **{
        f"{name},{kind},{rows}": ({"covariance_type": kind}, rows, "y", then)
        for name, then in (("stream", then_stream), ("add", then_add), ("tune", then_tune))
        for kind in STRUCTURES
        for rows in ("X", "gaps")
        if (name, rows) != ("tune", "gaps")
    },
    "stream,some labels": ({"covariance_type": "tied"}, "gaps", "some", then_stream),
    "t": ({"tail": "t", "covariance_type": "tied"}, "gaps", "y", then_nothing),
    "variational": ({"inference": "variational", "covariance_type": "tied"}, "gaps", "y", then_nothing),
    "hierarchical": ({"weight_prior": "hierarchical"}, "gaps", "y", then_stream),
    "shift": ({"group_shift": 4.0, "covariance_type": "tied"}, "gaps", "y", then_nothing),
}


@pytest.mark.parametrize("name", CHAINS)
def test_orders_do_not_matter(name: str) -> None:
    """Kernels, rows and classes come in other orders, and what is learnt in the orders that follow."""
    settings, kind, labels, then = CHAINS[name]
    X, y, w = ROWS[kind], ROWS[labels], ROWS["w"]
    random, plain = np.random.default_rng(1), np.arange(4)

    def learn(order: Array, rows: tuple[Array, Array, Array], classes: Array) -> Any:
        start = start_of(order)
        start["weights"] = start["weights"][:, classes]
        settings_of_start = {**settings, "init": start, "max_iter": 3, "tol": 0.0}
        make = classifier if then is then_tune else mixture
        with cells.quiet():
            return then(make(**settings_of_start).fit(*rows), rows)

    def same(model: Any, order: Array, classes: Array) -> None:
        part = cells.mixtures(model)[0]
        compared = {*ATTRIBUTES, "group_shifts_", "mean_precision_", "weight_prior_"}
        for attribute in compared & vars(wanted).keys():
            before, after = getattr(wanted, attribute), getattr(part, attribute)
            if attribute == "weights_":
                before = before[order][:, classes]
            elif attribute == "group_shifts_":
                before = before[classes][:, order]
            elif attribute == "class_prior_":
                before = before[classes]
            elif attribute != "covariances_" or wanted.covariance_type_ != "tied":
                before = before[order]
            assert_allclose(after, before, rtol=1e-7, atol=1e-9, err_msg=attribute)

    three = np.arange(3)
    wanted = cells.mixtures(learn(plain, (X, y, w), three))[0]
    n_kernels = wanted.n_kernels_
    all_classes = np.arange(len(wanted.classes_))
    for order in ([1, 0, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        found = learn(np.array(order), (X, y, w), three)
        # A variational fit removes kernels without rows.
        kept = np.array(order) if n_kernels == 4 else np.argsort(np.argsort([k for k in order if k != 1]))
        same(found, kept, all_classes)
    if then is then_nothing:
        shuffled = random.permutation(N_ROWS)
        same(learn(plain, (X[shuffled], y[shuffled], w[shuffled]), three), plain[:n_kernels], all_classes)
    # 10, 20, 30 become 30, 20, 10; a class that is added keeps its place before the others.
    found = learn(plain, (X, 40.0 - y, w), three[::-1])
    added = len(all_classes) - 3
    same(found, plain[:n_kernels], np.append(np.arange(added), added + three[::-1]))
