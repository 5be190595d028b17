"""Cells of the matrix as estimators, rows of every kind, and what the brute-force oracle expects of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import brute
import numpy as np
from crossing import Cell
from libraries import torch
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.model import solving

Array = brute.Array

# Few rows, and so many that passes take them in several blocks.
N_SMALL, N_LARGE = 150, 5000
N_FEATURES, N_CLASSES, N_STARTS = 4, 3, 3
N_KERNELS, N_CLUSTERS = 5, 4
LABELS = np.array([10, 20, 30])
SETS = [[0, 2], [1, 3]]
UNITS, OFFSETS = np.array([1.0, 10.0, 0.1, 3.0]), np.array([0.0, 100.0, -5.0, 2.0])
PRIOR_ROWS, WEIGHT_PRIOR, SHIFT, FLOOR = 6.0, 1.5, 4.0, 1e-6
# Where device cells run; 'cuda' by hand, on a machine that has it.
DEVICE = os.environ.get("SKMIX_MATRIX_DEVICE", "cpu")


@dataclass(frozen=True)
class Data:
    """Rows of a cell: X (N, M) with gaps, labels y (N,) or None, weights w (N,) or None.

    Values with errors are complex, as for the oracle.
    """

    X: Array
    y: Array | None
    w: Array | None

    def take(self, index: Array) -> Data:
        """Return some of the rows, in this order."""
        return Data(self.X[index], *(None if each is None else each[index] for each in (self.y, self.w)))

    def moved(self, units: Array, offsets: Array) -> Data:
        """Return the rows in other units."""
        return replace(self, X=self.X * units + offsets)

    @property
    def brute(self) -> brute.Rows:
        """The rows for the oracle."""
        codes = np.zeros(len(self.X), dtype=np.int64)
        if self.y is not None:
            codes = np.where(self.y < 0, -1, np.searchsorted(LABELS, self.y))
        return brute.Rows(self.X, codes, np.ones(len(self.X)) if self.w is None else self.w)


def columns_of(cell: Cell) -> list[list[int]]:
    """Return the features of each mixture in the model."""
    return SETS if cell["model"] == "sets" else [list(range(N_FEATURES))]


def sizes(cell: Cell) -> list[int]:
    """Return how many rows there are: few, and many unless passes run on a device."""
    return [N_SMALL] if cell["rows"] in ("tensor", "single", "streamed") else [N_SMALL, N_LARGE]


def make_data(cell: Cell, n_rows: int, seed: int = 3) -> Data:
    """Return rows of clusters that overlap; classes share them unequally."""
    random = np.random.default_rng(seed)
    centres = 2.0 * np.random.default_rng(1).normal(size=(N_CLUSTERS, N_FEATURES))
    shares = np.random.default_rng(2).dirichlet(np.full(N_CLUSTERS, 5.0), size=N_CLASSES)
    codes = random.permutation(np.repeat([0, 1, 2], [5, 3, 2])[np.arange(n_rows) % 10])
    below = np.cumsum(shares, axis=1)[codes, :-1]
    clusters = (random.uniform(size=(n_rows, 1)) > below).sum(axis=1)
    root = np.random.default_rng(4).normal(size=(N_FEATURES, N_FEATURES)) / 2.0 + np.eye(N_FEATURES)
    X = centres[clusters] + random.normal(size=(n_rows, N_FEATURES)) @ root.T
    if cell["tail"] != "none":
        noise = random.uniform(size=n_rows) < 0.05
        X[noise] = random.uniform(-12.0, 12.0, size=(noise.sum(), N_FEATURES))
    X = X * UNITS + OFFSETS
    if cell["errors"]:
        # Errors of up to the spread of a cluster; a fifth of the values, and of the rows, are exact.
        errors = random.uniform(0.0, 1.0, size=X.shape) * (random.uniform(size=X.shape) > 0.2) * UNITS
        errors[random.uniform(size=n_rows) < 0.2] = 0.0
        X = X + errors * (random.normal(size=X.shape) + 1j)
    if cell["gaps"]:
        missing = random.uniform(size=X.shape) < 0.15
        missing[missing.all(axis=1)] = False
        # A row of each set of features has a value in it, and one row of each class is complete.
        for columns in SETS:
            missing[np.ix_(missing[:, columns].all(axis=1), columns)] = False
        missing[:30] = False
        X = np.where(missing, np.nan, X)
    y = None if cell["labels"] == "none" else LABELS[codes]
    if cell["labels"] == "unlabelled":
        y = np.where(random.uniform(size=n_rows) < 0.25, -1, y)
    w = None
    if cell["weighted"]:
        w = random.integers(1, 4, size=n_rows) * {"small": 1e-3, "large": 100.0}.get(cell["weighted"], 1.0)
    if cell["rows"] == "float32":
        X = (
            X.astype(np.complex64).astype(X.dtype)
            if cell["errors"]
            else X.astype(np.float32).astype(np.float64)
        )
    return Data(X, y, w)


# ---------------------------------------------------------------- starts


def make_start(cell: Cell, data: Data, columns: list[int]) -> brute.Model:
    """Return where the fit of some features begins."""
    random, K = np.random.default_rng(5), N_KERNELS
    complete = data.X.real[~np.isnan(data.X).any(axis=1)][:, columns]
    L = 1 if data.y is None else N_CLASSES
    M, spread = len(columns), np.cov(complete.T)
    means = complete[random.choice(len(complete), K, replace=False)]
    widths = random.uniform(0.3, 0.8, size=(K, 1, 1))
    covariances = widths * (0.6 * spread + 0.4 * np.diag(np.diag(spread)))
    if cell["covariance"] == "tied":
        covariances = np.tile(covariances.mean(axis=0), (K, 1, 1))
    elif cell["covariance"] in ("diag", "spherical"):
        variances = np.einsum("kdd->kd", covariances)
        if cell["covariance"] == "spherical":
            variances = np.repeat(variances.mean(axis=1, keepdims=True), M, axis=1)
        covariances = variances[..., None] * np.eye(M)
    degrees = None
    if cell["tail"] in ("t", "t4"):
        degrees = np.full(K, 4.0 if cell["tail"] == "t4" else 10.0)  # learnt degrees begin there
    weights = random.dirichlet(np.full(K, 3.0), size=L).T
    if cell["empty"] != "none":
        weights[{"first": 0, "middle": K // 2, "last": K - 1}[cell["empty"]]] = 0.0
        weights /= weights.sum(axis=0)
    model = brute.Model(weights, means, covariances, degrees)
    if cell["labels"] == "unlabelled":
        rows = data.brute
        counted = np.bincount(rows.classes + 1, weights=rows.weights)[1:]
        model = replace(model, class_prior=counted / counted.sum())
    return model


def as_init(cell: Cell, model: brute.Model) -> dict[str, Any]:
    """Return a start as the estimators take it."""
    return {"means": model.means, "covariances": of_structure(cell, model), "weights": model.weights}


def of_structure(cell: Cell, model: brute.Model) -> Array:
    """Return covariances in the shape of their structure."""
    full = model.covariances
    if cell["covariance"] == "tied":
        return full[0]
    variances = np.einsum("kdd->kd", full)
    return {"full": full, "diag": variances, "spherical": variances[:, 0]}[cell["covariance"]]


def permuted(model: brute.Model, kernels: Array, classes: Array) -> brute.Model:
    """Return a model with its kernels and classes in another order."""
    shifts = None if model.shifts is None else model.shifts[classes][:, kernels]
    of_kernels = {
        name: None if value is None else value[kernels]
        for name, value in vars(model).items()
        if name in ("means", "covariances", "degrees")
    }
    prior = None if model.class_prior is None else model.class_prior[classes]
    weights = model.weights[kernels][:, classes]
    return replace(model, **of_kernels, weights=weights, class_prior=prior, shifts=shifts)


def moved_start(model: brute.Model, units: Array, offsets: Array) -> brute.Model:
    """Return a start in other units."""
    covariances = model.covariances * units[:, None] * units
    return replace(model, means=model.means * units + offsets, covariances=covariances)


# ---------------------------------------------------------------- fits


def make_estimator(cell: Cell, starts: Sequence[brute.Model | dict[str, Array]], max_iter: int) -> Any:
    """Return the unfitted estimator of a cell."""
    settings: dict[str, Any] = {
        "n_kernels": N_KERNELS,
        "covariance_type": cell["covariance"],
        "tail": None if cell["tail"] == "none" else "t",
        "degrees": 4.0 if cell["tail"] == "t4" else None,
        "freeze": None if cell["freeze"] == "none" else cell["freeze"],
        "covariance_prior": {"none": None, "number": PRIOR_ROWS, "auto": "auto"}[cell["covariance_prior"]],
        "weight_prior": {"none": None, "number": WEIGHT_PRIOR}.get(cell["weight_prior"], "hierarchical"),
        "variance_floor": FLOOR,
        "random_state": 0,
        "max_iter": max_iter,
        "tol": 0.0,
        "stopping": cell["stopping"],
        "inference": cell["inference"],
    }
    if cell["starts"] == "three":
        settings |= {"init": "k-means", "n_init": N_STARTS}
    else:
        inits = [start if isinstance(start, dict) else as_init(cell, start) for start in starts]
        settings["init"] = inits if cell["model"] == "sets" else inits[0]
    device = {"tensor": f"{DEVICE}:0", "single": f"{DEVICE}:0/float32", "streamed": f"{DEVICE}:0"}
    if cell["rows"] in device:
        settings["device"] = device[cell["rows"]]
    if cell["model"] == "mixture":
        return SharedKernelMixture(**settings, group_shift=SHIFT if cell["shift"] else None)
    return SharedKernelClassifier(**settings, feature_sets=SETS if cell["model"] == "sets" else None)


def as_kind(cell: Cell, data: Data, folder: Path) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return rows, labels and weights as the kind of the cell, and the argument for errors, if any."""
    X, y, w = _as_kind(cell, data, folder)
    if not cell["errors"]:
        return X, y, w, {}
    names, errors = [f"f{d}" for d in range(data.X.shape[1])], data.X.imag
    # What is not measured has no error, or an unknown one.
    errors = np.where(np.isnan(data.X.real), np.inf, errors)
    if cell["rows"] == "float32":
        return X, y, w, {"errors": errors.astype(np.float32)}
    if cell["rows"] == "frame":
        import pandas as pd

        beside = pd.DataFrame(errors, columns=[f"{name} error" for name in names])
        return pd.concat([beside, X], axis=1), y, w, {"errors": {name: f"{name} error" for name in names}}
    if cell["rows"] in ("npy", "streamed"):
        path = folder / f"errors{len(errors)}.npy"
        np.save(path, np.where(np.isinf(errors), np.nan, errors))
        return X, y, w, {"errors": path}
    return X, y, w, {"errors": "_err" if cell["rows"] == "parquet" else errors}


def _as_kind(cell: Cell, data: Data, folder: Path) -> tuple[Any, Any, Any]:
    X, y, w = data.X.real, data.y, data.w
    names = [f"f{d}" for d in range(X.shape[1])]
    if cell["rows"] == "float32":
        return X.astype(np.float32), y, w
    if cell["rows"] == "frame":
        import pandas as pd

        return pd.DataFrame(X, columns=names), None if y is None else pd.Series(y), w
    if cell["rows"] in ("npy", "streamed"):
        path = folder / f"rows{len(X)}.npy"
        np.save(path, X)
        return path, y, w
    if cell["rows"] == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = dict(zip(names, X.T, strict=True))
        if cell["errors"]:
            columns |= {f"{name}_err": errors for name, errors in zip(names, data.X.imag.T, strict=True)}
        columns |= {name: each for name, each in (("label", y), ("weight", w)) if each is not None}
        path = folder / f"rows{len(X)}.parquet"
        pq.write_table(pa.table(columns), path)
        return path, None if y is None else "label", None if w is None else "weight"
    if cell["rows"] == "dask":
        import dask.array as da

        chunk = -(-len(X) // 3)
        rows = da.from_array(X, chunks=(chunk, X.shape[1]))
        return rows, *(None if each is None else da.from_array(each, chunks=chunk) for each in (y, w))
    if cell["rows"] == "tensor":
        return torch.as_tensor(X, device=DEVICE), y, w
    return X, y, w


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore that fits stop early, and that rows of files have no group or no names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.filterwarnings("ignore", ".* have no group")
        warnings.filterwarnings("ignore", ".*: this fit runs on the host, not on the device")
        yield


def fitted(cell: Cell, data: Data, starts: list[brute.Model], max_iter: int, folder: Path) -> Any:
    """Return the fitted estimator of a cell."""
    X, y, w, more = as_kind(cell, data, folder)
    with quiet():
        return make_estimator(cell, starts, max_iter).fit(X, y, sample_weight=w, **more)


@contextmanager
def noted_starts() -> Iterator[list[list[dict[str, Array]]]]:
    """Note the starts of each mixture that is fitted, as `init` takes them; none is refined."""
    draw, noted = solving.start_batches, []

    def drawn(settings: Any, training: Any, problem: Any, *rest: Any, **more: Any) -> Iterator[Any]:
        noted.append(starts := [])
        for batch in draw(settings, training, problem, *rest, **more):
            names, outside = ("means", "covariances", "weights"), problem.leave(batch)
            for r in range(len(batch.means)):
                starts.append({name: host(getattr(outside.take(r), name)) for name in names})
            yield batch

    def as_drawn(problem: Any, starts: Any, seed: int) -> Any:
        return starts

    with mock.patch.object(solving, "start_batches", drawn), mock.patch.object(solving, "refined", as_drawn):
        yield noted


def fitted_alone(
    cell: Cell,
    data: Data,
    columns: list[int],
    part: Any,
    start: dict[str, Array],
    max_iter: int,
    folder: Path,
) -> Any:
    """Return the mixture of some features from one start of a batch, of which `part` is the best."""
    estimator = make_estimator({**cell, "starts": "one"}, [start], max_iter)
    if "covariance_prior_" in vars(part):
        # It is found with all starts, for all of them.
        estimator.set_params(covariance_prior=tuple(part.covariance_prior_))
    X, y, w, more = as_kind(cell, replace(data, X=data.X[:, columns]), folder)
    with quiet():
        return estimator.fit(X, y, sample_weight=w, **more)


def mixtures(model: Any) -> list[Any]:
    """Return the mixtures of an estimator."""
    return list(getattr(model, "models_", [model]))


def host(value: Any) -> Any:
    """Return an array on the host, or None."""
    if value is None:
        return None
    value = value.compute() if hasattr(value, "compute") else value
    return np.asarray(value.cpu() if hasattr(value, "cpu") else value)


def as_brute(cell: Cell, part: Any, class_prior: Any = None) -> brute.Model:
    """Return a fitted mixture for the oracle."""
    own = {name: host(vars(part).get(f"{name}_")) for name in ("weights", "means", "covariances")}
    covariances, (K, M) = own["covariances"], own["means"].shape
    if cell["covariance"] == "tied":
        covariances = np.tile(covariances, (K, 1, 1))
    elif cell["covariance"] in ("diag", "spherical"):
        variances = covariances if covariances.ndim == 2 else np.repeat(covariances[:, None], M, axis=1)
        covariances = variances[..., None] * np.eye(M)
    degrees, shifts = (host(vars(part).get(name)) for name in ("kernel_degrees_", "group_shifts_"))
    return brute.Model(own["weights"], own["means"], covariances, degrees, class_prior, shifts)


# ---------------------------------------------------------------- what is expected


def feature_moments(data: Data, columns: list[int]) -> tuple[Array, Array]:
    """Return the weighted mean and variance (M,) of the observed values of each feature."""
    X, w = data.X[:, columns], np.ones(len(data.X)) if data.w is None else data.w
    seen = np.ma.masked_invalid(X.real)
    means = np.ma.average(seen, axis=0, weights=w).data
    return means, np.ma.average((seen - means) ** 2, axis=0, weights=w).data


def variance_floor(cell: Cell, data: Data, columns: list[int]) -> Array:
    """Return the smallest variances (M,) of kernels: with a prior, no less than rows tell values apart.

    A value of a real number stands for an interval as long as the median between neighbouring ones, whose
    variance is a twelfth of its square. That is found in some thousand rows, evenly spaced.
    """
    _, variances = feature_moments(data, columns)
    if cell["covariance_prior"] == "none" or cell["inference"] != "em" or cell["freeze"] != "none":
        return FLOOR * variances
    some = np.unique(np.linspace(0, len(data.X) - 1, 4096).round().astype(np.int64))
    values = [np.unique(column[~np.isnan(column)]) for column in data.X.real[some][:, columns].T]
    steps = np.array([np.median(np.diff(own)) for own in values])
    return np.maximum(FLOOR * variances, steps**2 / 12.0)


def rule_of(cell: Cell, data: Data, part: Any, columns: list[int]) -> brute.Rule:
    """Return the M-step of a cell; a prior that was found in the data is that of the fit."""
    K, (_, variances) = N_KERNELS, feature_moments(data, columns)
    rows, scale = 0.0, None
    if cell["covariance_prior"] == "number":
        rows, scale = PRIOR_ROWS, np.diag(variances / K ** (2.0 / len(columns)))
    elif "covariance_prior_" in vars(part):
        rows, scale = part.covariance_prior_
        scale = np.diag(host(scale)) if np.ndim(scale) == 1 else host(scale)
    return brute.Rule(
        structure=cell["covariance"],
        floor=variance_floor(cell, data, columns),
        prior_rows=float(rows),
        prior_covariance=scale,
        weight_prior=WEIGHT_PRIOR if cell["weight_prior"] == "number" else 1.0,
        freeze=None if cell["freeze"] == "none" else cell["freeze"],
        learn_degrees=cell["tail"] == "t",
    )


def variational_prior(cell: Cell, data: Data, columns: list[int]) -> brute.Prior:
    """Return the prior of a variational fit, with its defaults."""
    K, M, (means, variances) = N_KERNELS, len(columns), feature_moments(data, columns)
    dimension = 1 if cell["covariance"] in ("diag", "spherical") else M
    return brute.Prior(
        concentration=WEIGHT_PRIOR if cell["weight_prior"] == "number" else 1.0 / K,
        mean_rows=K ** (-2.0 / M),
        centre=means,
        covariance_rows=PRIOR_ROWS if cell["covariance_prior"] == "number" else dimension + 2.0,
        covariance=np.diag(variances / K ** (2.0 / M)),
    )


def expected(
    cell: Cell, data: Data, start: brute.Model, fits: list[Any], columns: list[int]
) -> tuple[list[brute.Model], brute.Rule]:
    """Return the models before each pass and after the last one, and the rule of the last.

    `fits` are mixtures fitted with 1, 2, … passes; concentrations that were learnt are taken from them.
    """
    rows, rule = replace(data.brute, X=data.X[:, columns]), rule_of(cell, data, fits[-1], columns)
    learnt = [host(vars(part).get("weight_prior_")) for part in fits]
    path = [start]
    for concentration in learnt:
        if cell["inference"] == "variational":
            prior = variational_prior(cell, data, columns)
            prior = prior if concentration is None else replace(prior, concentration=concentration)
            path.append(brute.next_posterior(rows, path[-1], cell["covariance"], prior))
            continue
        path.append(brute.next_model(rows, path[-1], rule))
        if concentration is not None:
            path[-1] = brute.with_posterior_weights(path[-1], concentration)
    return path, rule
