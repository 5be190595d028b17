"""Every feature crossed with every other: fits against one brute-force oracle, and what must not change them.

The cells are a covering array of all pairs of values. Each runs with few rows and with many in the compiled
core; passes over few rows and their scores run in the reference too, and everything does with
SKMIX_INSTRUCTIONS=reference. `SKMIX_MATRIX_STRENGTH=3 pytest tests/matrix` runs all triples, and
SKMIX_MATRIX_DEVICE=cuda the cells of devices on a GPU.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import brute
import matrix_cells as cells
import numpy as np
import onnxruntime
import pytest
from by_reference import by_reference
from crossing import EMPTY, FEATURES, FILES, REFUSED, Cell, Value, covering, default_cell, name_of
from libraries import torch
from matrix_cells import (
    Data,
    as_brute,
    as_kind,
    columns_of,
    fitted,
    host,
    make_data,
    make_start,
    mixtures,
    quiet,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp

from skmix import load
from skmix.engine import scoring as density

# Three or more values that were once wrong together, or that a stream goes on from.
TOGETHER: list[Cell] = [
    {"covariance": "tied", "empty": "first"},
    *({"covariance": "tied", "gaps": True, "empty": empty} for empty in EMPTY),
    {"covariance": "tied", "gaps": True, "empty": "first", "tail": "t4"},
    {"shift": True, "weight_prior": "hierarchical"},
    {"covariance": "tied", "gaps": True, "empty": "first", "labels": "unlabelled", "weighted": "small"},
    {"covariance": "tied", "gaps": True, "empty": "first", "model": "sets", "after": "stream"},
    *(
        {"after": "stream", "labels": labels, "weighted": weighted}
        for labels in FEATURES["labels"]
        for weighted in FEATURES["weighted"]
    ),
    {"after": "stream", "labels": "unlabelled", "weighted": "small", "weight_prior": "hierarchical"},
]
CELLS = covering(int(os.environ.get("SKMIX_MATRIX_STRENGTH", "2")))
CELLS += [{**default_cell(), **cell} for cell in TOGETHER]
ON_DEVICE = ("tensor", "single", "streamed")
UNITS, OFFSETS = np.array([2.5, 0.3, 7.0, 11.0]), np.array([-3.0, 40.0, 0.7, 1.0])


def as_text(values: frozenset[Value]) -> str:
    """Return values that are refused together as text."""
    return ",".join(sorted(f"{name}={value}" for name, value in values))


def check_torch(cell: Cell) -> None:
    """Skip cells on a device where PyTorch is missing."""
    if cell["rows"] in ON_DEVICE and torch is None:
        pytest.skip("PyTorch, an optional extra, is not installed")


def tolerance(cell: Cell) -> dict[str, float]:
    """Return how far numbers may be off.

    Products over rows in single precision round by 1e-7, and sums of a hundred rows in two passes by some
    1e-6: the largest error was 5e-6 on a processor. Another device adds in another order.
    """
    return {"rtol": 1e-4, "atol": 1e-4} if cell["rows"] == "single" else {"rtol": 1e-7, "atol": 1e-9}


def agree(cell: Cell, found: brute.Model, wanted: brute.Model) -> None:
    """Check that parameters agree; means and covariances in units of the features."""
    allowed, deviations = tolerance(cell), np.sqrt(np.einsum("kdd->kd", wanted.covariances).mean(axis=0))
    assert_allclose(found.weights, wanted.weights, **allowed)
    assert_allclose(found.means / deviations, wanted.means / deviations, **allowed)
    units = deviations[:, None] * deviations
    assert_allclose(found.covariances / units, wanted.covariances / units, **allowed)
    if wanted.degrees is not None:
        assert_allclose(found.degrees, wanted.degrees, **allowed)
    if wanted.shifts is not None:
        assert found.shifts is not None
        assert_allclose(found.shifts / deviations, wanted.shifts / deviations, **allowed)


# ---------------------------------------------------------------- the cells


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_a_crossing(cell: Cell, tmp_path: Path) -> None:
    check_torch(cell)
    for n_rows in cells.sizes(cell):
        check_cell(cell, n_rows, tmp_path)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell["rows"] not in ON_DEVICE], ids=name_of)
def test_a_crossing_by_the_reference(cell: Cell, tmp_path: Path) -> None:
    data = make_data(cell, cells.N_SMALL)
    starts = [make_start(cell, data, columns) for columns in columns_of(cell)]
    one = {**cell, "starts": "one"}
    n_passes = passes_of(cell)
    with by_reference():
        model = fitted(one, data, starts, n_passes, tmp_path)
        check_passes(one, data, starts, model, n_passes)
        check_scores(one, data, model, tmp_path)


def passes_of(cell: Cell) -> int:
    """Return how many passes are compared."""
    return 1 if cell["shift"] and cell["weight_prior"] == "hierarchical" else 2


def check_cell(cell: Cell, n_rows: int, folder: Path) -> None:
    """Check all properties of a cell with so many rows."""
    data = make_data(cell, n_rows)
    starts = [make_start(cell, data, columns) for columns in columns_of(cell)]

    def fit(rows: Data, max_iter: int, begin: list[brute.Model] = starts) -> Any:
        return fitted(cell, rows, begin, max_iter, folder)

    if cell["starts"] == "three":
        check_batch(cell, data, starts, folder)
        return
    n_passes = passes_of(cell)
    model = fit(data, n_passes)
    check_passes(cell, data, starts, model, n_passes)
    check_scores(cell, data, model, folder)
    if n_rows == cells.N_SMALL:
        check_invariances(cell, data, starts, model, fit, n_passes)
        check_file(cell, data, model, folder / "model.skmix")
        # The loop ends a start as failed if the objective falls.
        assert set(mixtures(fit(data, 20))[0].start_status_) <= {"stopped", "converged"}
    AFTER[cell["after"]](cell, data, model)


def check_passes(cell: Cell, data: Data, starts: list[brute.Model], model: Any, n_passes: int) -> None:
    """Check parameters and likelihoods after the passes against the oracle."""
    fits = [model] * n_passes
    if cell["weight_prior"] == "hierarchical":
        # Learnt concentrations are those of fits with fewer passes, without shifts, to rows in memory.
        plain = {**cell, "shift": False, "rows": "array" if cell["rows"] in FILES else cell["rows"]}
        fits = [fitted(plain, data, starts, n, Path()) for n in range(1, n_passes + 1)]
    for group, (columns, part) in enumerate(zip(columns_of(cell), mixtures(model), strict=True)):
        rows = replace(data.brute, X=data.X[:, columns])
        own = [mixtures(each)[group] for each in fits]
        path, rule = cells.expected(cell, data, starts[group], own, columns)
        if "variance_floor_" in vars(part):
            # Of many rows in files and on devices, others are looked at.
            digits = 1e-5 if len(data.X) == cells.N_SMALL or cell["rows"] not in FILES else 0.5
            assert_allclose(host(part.variance_floor_), rule.floor, rtol=digits)
        if cell["shift"] and data.y is not None:
            path, rule = shifted_path(cell, rows, path, rule, part, n_passes)
        agree(cell, as_brute(cell, part), path[-1])
        if path[-1].class_prior is not None:
            assert_allclose(host(part.class_prior_), path[-1].class_prior, **tolerance(cell))
        if len(data.X) > cells.N_SMALL:
            continue
        point = replace(path[-1], log_weights=None)
        total, scale = brute.log_likelihood(rows, point).sum(), rows.weights.sum()
        assert_allclose(part.log_likelihood_ / scale, total / scale, **tolerance(cell))
        if cell["inference"] == "em" and cell["weight_prior"] != "hierarchical":
            reached = [brute.log_likelihood(rows, each) / scale for each in path[:-1]]
            assert_allclose(host(part.log_likelihood_path_) / scale, reached, **tolerance(cell))
            # The shifts are a second fit, with a penalty of its own.
            values = [brute.objective(rows, each, rule) for each in path[n_passes if cell["shift"] else 0 :]]
            assert np.all(np.diff(values) > -1e-9 * np.abs(values[1:]))
        if len(fits) == 2 and "weight_prior_" in vars(part) and not cell["shift"]:
            before, after = (host(mixtures(each)[group].weight_prior_) for each in fits)
            assert path[-1].counts is not None
            gained = [brute.dirichlet_evidence(path[-1].counts, a) for a in (before, after)]
            assert gained[1] >= gained[0] - 1e-9 * abs(gained[0])


def shifted_path(
    cell: Cell, rows: brute.Rows, path: list[brute.Model], rule: brute.Rule, part: Any, n_passes: int
) -> tuple[list[brute.Model], brute.Rule]:
    """Return the models of the passes with shifts, which begin where those without have ended."""
    path[-1] = replace(path[-1], shifts=np.zeros((cells.N_CLASSES, *path[-1].means.shape)), log_weights=None)
    rule = replace(rule, shift=cells.SHIFT)
    for _ in range(n_passes):
        path.append(brute.next_model(rows, path[-1], rule))
        if cell["weight_prior"] == "hierarchical":
            path[-1] = brute.with_posterior_weights(path[-1], host(part.weight_prior_))
    return path, rule


def check_scores(cell: Cell, data: Data, model: Any, folder: Path) -> None:
    """Check densities and probabilities of rows of the cell's kind under the fitted model."""
    X, y, _, more = as_kind(cell, data, folder)
    parts, prior = mixtures(model), host(model.class_prior_)
    own = [as_brute(cell, part) for part in parts]
    # All rows are scored, and some are compared.
    rows = data.take(np.arange(0, len(data.X), 1 + len(data.X) // 200))
    per_class = sum(
        brute.class_log_likelihood(rows.X[:, columns], each)
        for columns, each in zip(columns_of(cell), own, strict=True)
    )
    allowed = tolerance(cell) if cell["rows"] == "single" else {"rtol": 1e-8, "atol": 1e-8}

    def same(found: Any, wanted: Any) -> None:
        assert_allclose(host(found)[:: 1 + len(data.X) // 200], wanted, **allowed)

    same(model.class_log_likelihood(X, **more), per_class)
    joint = per_class + np.log(prior)
    same(model.score_samples(X, **more), logsumexp(joint, axis=1))
    if cell["model"] != "mixture":
        same(model.predict_proba(X, **more), np.exp(joint - logsumexp(joint, axis=1, keepdims=True)))
        return
    shares = brute.responsibilities(rows.X, own[0], np.full(len(rows.X), -1), prior).sum(axis=1)
    same(model.predict_proba(X, **more), shares)
    if cell["labels"] == "classes" and cell["rows"] not in ("parquet", "dask"):
        same(model.score_samples(X, y, **more), per_class[np.arange(len(rows.X)), rows.brute.classes])


def check_invariances(
    cell: Cell, data: Data, starts: list[brute.Model], model: Any, fit: Callable[..., Any], n_passes: int
) -> None:
    """Check that order and units do not matter, and that weights are repetitions, or mere proportions."""
    own = [as_brute(cell, part) for part in mixtures(model)]

    def same(other: Any, units: Any = None, offsets: Any = None) -> None:
        for columns, before, after in zip(columns_of(cell), own, mixtures(other), strict=True):
            wanted = before
            if units is not None:
                wanted = cells.moved_start(before, units[columns], offsets[columns])
                if before.shifts is not None:
                    wanted = replace(wanted, shifts=before.shifts * units[columns])
            agree(cell, as_brute(cell, after), wanted)

    same(fit(data.take(np.random.default_rng(6).permutation(len(data.X))), n_passes))
    units = np.full(len(UNITS), 3.0) if cell["covariance"] == "spherical" else UNITS
    moved = [
        cells.moved_start(start, units[columns], OFFSETS[columns])
        for columns, start in zip(columns_of(cell), starts, strict=True)
    ]
    if cell["rows"] != "float32":  # which rounds the rows anew
        same(fit(data.moved(units, OFFSETS), n_passes, moved), units, OFFSETS)
    if data.w is not None:
        if cell["weighted"] is True:
            times = np.repeat(np.arange(len(data.X)), data.w.astype(np.int64))
            same(fit(replace(data.take(times), w=None), n_passes))
        if not counts_rows(cell):
            same(fit(replace(data, w=0.037 * data.w), n_passes))
    check_orders(cell, data, starts, own, fit, n_passes)


def counts_rows(cell: Cell) -> bool:
    """Return whether a prior is worth a number of rows, so that the scale of the weights matters."""
    priors = cell["covariance_prior"], cell["weight_prior"]
    return priors != ("none", "none") or cell["shift"] or cell["inference"] == "variational"


def check_orders(
    cell: Cell,
    data: Data,
    starts: list[brute.Model],
    own: list[brute.Model],
    fit: Callable[..., Any],
    n_passes: int,
) -> None:
    """Check that kernels and classes in another order give the same model in that order."""
    kernels = np.random.default_rng(7).permutation(cells.N_KERNELS)
    classes = np.arange(starts[0].weights.shape[1])
    for order, labels in ((kernels, classes), (np.arange(cells.N_KERNELS), classes[::-1])):
        begin, y = [cells.permuted(start, order, labels) for start in starts], data.y
        if y is not None:
            y = np.where(y < 0, y, cells.LABELS[labels[np.searchsorted(cells.LABELS, y)]])
        others = mixtures(fit(replace(data, y=y), n_passes, begin))
        for before, after in zip(own, others, strict=True):
            agree(cell, as_brute(cell, after), cells.permuted(before, order, labels))


def check_file(cell: Cell, data: Data, model: Any, path: Path) -> None:
    """Check that a model is the same, to the last bit, after it was saved and loaded."""
    model.save(path)
    again = load(path)
    for before, after in zip(mixtures(model), mixtures(again), strict=True):
        for name in ("weights_", "means_", "covariances_", "log_likelihood_path_", "class_prior_"):
            assert_array_equal(host(vars(after)[name]), host(vars(before)[name]))
    X = torch.as_tensor(data.X.real, device=cells.DEVICE) if cell["rows"] == "tensor" else data.X.real
    with quiet():
        assert_array_equal(host(again.score_samples(X)), host(model.score_samples(X)))


def check_batch(cell: Cell, data: Data, starts: list[brute.Model], folder: Path) -> None:
    """Check that the starts of a batch give what each gives alone, and that a pass is the oracle's."""
    plain = cell["weight_prior"] != "hierarchical" and cell["inference"] == "em"
    with cells.noted_starts() as drawn:
        batch = fitted(cell, data, starts, 2, folder)
    for columns, part, own in zip(columns_of(cell), mixtures(batch), drawn, strict=True):
        rows, rule = replace(data.brute, X=data.X[:, columns]), cells.rule_of(cell, data, part, columns)

        def alone(
            n_passes: int, shift: bool = False, columns: Any = columns, part: Any = part, own: Any = own
        ) -> list[Any]:
            one = {**cell, "model": "mixture", "shift": shift}
            return [cells.fitted_alone(one, data, columns, part, start, n_passes, folder) for start in own]

        def as_models(fits: list[Any]) -> list[brute.Model]:
            prior = [host(each.class_prior_) if cell["labels"] == "unlabelled" else None for each in fits]
            return [as_brute(cell, *each) for each in zip(fits, prior, strict=True)]

        fits = alone(2)
        reached = [each.log_likelihood_ for each in fits]
        digits = tolerance(cell)["rtol"] if cell["rows"] == "single" else 1e-9
        assert_allclose(host(part.start_log_likelihoods_), reached, rtol=digits)
        before, after = as_models(alone(1)), as_models(fits)
        if plain:
            for one, other in zip(before, after, strict=True):
                agree(cell, other, brute.next_model(rows, one, rule))
        bounds = [vars(each).get("lower_bound_") for each in fits]
        if None in bounds:
            bounds = [brute.objective(rows, each, rule) for each in after]
        best = int(np.argmax(bounds))
        found = as_models(alone(2, shift=True))[best] if cell["shift"] else after[best]
        agree(cell, as_brute(cell, part), found)
    # The loop ends a start as failed if its objective falls.
    for part in mixtures(fitted(cell, data, starts, 25, folder)):
        assert set(part.start_status_) <= {"stopped", "converged"}


# ---------------------------------------------------------------- what comes after a fit


def check_nothing(cell: Cell, data: Data, model: Any) -> None:
    """Check nothing: the fit is all there is."""


def check_added_class(cell: Cell, data: Data, model: Any) -> None:
    """Check the weights of a class that is learnt with the kernels as they are."""
    new = make_data(cell, 60, seed=8)
    kind = {**cell, "rows": "array" if cell["rows"] == "single" else cell["rows"]}
    before = [as_brute(cell, part) for part in mixtures(model)]
    with tempfile.TemporaryDirectory() as folder, quiet():
        X, _, w, more = as_kind(kind, new, Path(folder))
        model.add_class(X, 40, sample_weight=w, **more)
    for columns, own, part in zip(columns_of(cell), before, mixtures(model), strict=True):
        K, prior = len(own.means), host(vars(part).get("weight_prior_"))
        one = replace(own, weights=np.full((K, 1), 1.0 / K))
        rows = replace(new.brute, X=new.X[:, columns], classes=np.zeros(60, dtype=np.int64))
        rule = brute.Rule(cell["covariance"], np.zeros(len(columns)), freeze="kernels")
        if cell["weight_prior"] == "number" and cell["inference"] == "em":
            rule = replace(rule, weight_prior=cells.WEIGHT_PRIOR)
        for _ in range(2):
            one = brute.next_model(rows, one, rule)
            if prior is not None:
                one = brute.with_posterior_weights(one, prior)
        found = as_brute(cell, part)
        assert_allclose(found.weights[:, -1], one.weights[:, 0], **tolerance(cell))
        assert_array_equal(found.weights[:, :-1], own.weights)


def check_stream(cell: Cell, data: Data, model: Any) -> None:
    """Check the average statistics of a stream: s ← (1 − η) s + η s_batch, and then the M-step.

    If the batch has one t-th of all rows, those of the fit and its own, η = t^−decay.
    """
    new = make_data(cell, 70, seed=9)
    before, prior = [as_brute(cell, part) for part in mixtures(model)], host(mixtures(model)[0].class_prior_)
    counted, total = [], data.brute.weights.sum()  # rows without a label count too
    decay = {"decay": 0.7} if cell["weighted"] else {}
    for own, part in zip(before, mixtures(model), strict=True):
        after, learnt = (host(vars(part).get(name)) for name in ("weight_concentration_", "weight_prior_"))
        counts = own.weights if learnt is None else after - learnt[:, None]
        counted.append(counts / counts.sum(axis=0))
    with tempfile.TemporaryDirectory() as folder, quiet():
        X, y, w, more = as_kind(cell, new, Path(folder))
        model.partial_fit(X, y, sample_weight=w, **decay, **more)
    for columns, own, weights, part in zip(columns_of(cell), before, counted, mixtures(model), strict=True):
        rows = replace(new.brute, X=new.X[:, columns])
        n_new = rows.weights.sum()
        entered = replace(own, class_prior=prior)
        share = (n_new / (total + n_new)) ** decay.get("decay", 0.6)
        sums, past = brute.expectations(rows, entered), weights.T * prior[:, None]
        old = brute.Sums(
            past,
            past,
            past[..., None] * own.means,
            past[..., None, None] * (own.means[:, :, None] * own.means[:, None, :] + own.covariances),
            sums.log_scales,
        )
        mixed = brute.Sums(
            *(
                (total + n_new) * ((1.0 - share) * a + share * b / n_new)
                for a, b in zip(vars(old).values(), vars(sums).values(), strict=True)
            )
        )
        rule = replace(cells.rule_of(cell, data, part, columns), prior_rows=0.0, learn_degrees=False)
        if cell["covariance_prior"] == "number":
            # A stream knows the variance of its features from the model.
            of_kernels = past.sum(axis=0)
            spread = own.means - of_kernels @ own.means
            variances = of_kernels @ (np.einsum("kdd->kd", own.covariances) + spread**2)
            scale = np.diag(variances / len(own.means) ** (2.0 / len(columns)))
            rule = replace(rule, prior_rows=cells.PRIOR_ROWS, prior_covariance=scale)
        wanted = brute.improved(mixed, entered, rule)
        if "weight_prior_" in vars(part):
            wanted = brute.with_posterior_weights(wanted, host(part.weight_prior_))
        agree(cell, as_brute(cell, part), wanted)
        assert_allclose(host(part.class_prior_), wanted.class_prior, **tolerance(cell))


def check_tuned(cell: Cell, data: Data, model: Any) -> None:
    """Check that tuning ends where the objective, by brute force, has no slope any more."""
    if len(data.X) > cells.N_SMALL:
        return
    rows, prior, columns = data.brute, host(model.class_prior_), columns_of(cell)[0]
    rule = replace(cells.rule_of(cell, data, model.models_[0], columns), freeze=None)
    if cell["inference"] == "variational" and cell["covariance_prior"] != "number":
        given = cells.variational_prior(cell, data, columns)
        rule = replace(rule, prior_rows=given.covariance_rows, prior_covariance=given.covariance)
    if cell["weight_prior"] == "hierarchical":
        rule = replace(rule, weight_prior=1.0)
    before = as_brute(cell, model.models_[0])
    with tempfile.TemporaryDirectory() as folder, quiet():
        X, y, w, _ = as_kind(cell, data, Path(folder))
        for _ in range(2):  # the second one forgets curvatures of the first steps, and ends nearer
            model.tune(X, y, sample_weight=w, trade_off=1.0, validation=None, max_iter=500)
    after = as_brute(cell, model.models_[0])
    slopes = [brute.tuning_gradient(rows, each, prior, rule, 1.0) for each in (before, after)]
    assert np.linalg.norm(slopes[1]) < 0.02 * np.linalg.norm(slopes[0])
    values = [brute.tuning_objective(rows, each, prior, rule, 1.0) for each in (before, after)]
    assert values[1] > values[0]


def check_imputed(cell: Cell, data: Data, model: Any) -> None:
    """Check the expectations of missing values, which are filled in some rows at a time."""
    few = data.take(np.arange(60))
    pieces = mock.patch.object(density, "_PREDICTED", 1)
    with tempfile.TemporaryDirectory() as folder, quiet(), pieces:
        X, _, _, more = as_kind(cell, few, Path(folder))
        found = host(model.impute(X, **more))
    parts = [
        (columns, as_brute(cell, part))
        for columns, part in zip(columns_of(cell), mixtures(model), strict=True)
    ]
    joint = np.log(host(model.class_prior_))
    for columns, own in parts:
        joint = joint + brute.class_log_likelihood(few.X[:, columns], own)
    posterior, wanted = np.exp(joint - logsumexp(joint, axis=1, keepdims=True)), few.X.real.copy()
    for columns, own in parts:
        wanted[:, columns] = brute.impute(few.X[:, columns], own, posterior)
    deviations = np.nanstd(data.X.real, axis=0)
    assert_allclose(found / deviations, wanted / deviations, **tolerance(cell))


def check_exported(cell: Cell, data: Data, model: Any) -> None:
    """Check that the ONNX graph of a model gives its densities and probabilities, for complete rows."""
    session = onnxruntime.InferenceSession(model.to_onnx().SerializeToString())
    rows = data.X.real[~np.isnan(data.X).any(axis=1)][:50]
    outputs = {
        each.name: value
        for each, value in zip(session.get_outputs(), session.run(None, {"X": rows}), strict=True)
    }
    X = torch.as_tensor(rows, device=cells.DEVICE) if cell["rows"] == "tensor" else rows
    probabilities = "responsibilities" if cell["model"] == "mixture" else "probabilities"
    with quiet():
        for name, found in (("log_density", model.score_samples(X)), (probabilities, model.predict_proba(X))):
            assert_allclose(outputs[name], host(found), rtol=1e-7, atol=1e-9)


def check_bags(cell: Cell, data: Data, model: Any) -> None:
    """Check posteriors of bags, claims and shares of classes against enumeration, for a few rows."""
    few = data.take(np.arange(60))
    bags = np.random.default_rng(8).integers(0, 9, 60)
    weights = np.ones(60) if few.w is None else few.w
    prior = host(model.class_prior_)
    # Bags and shares take values without errors, also where the fit had some.
    likelihood = sum(
        brute.class_log_likelihood(few.X.real[:, columns], as_brute(cell, part))
        for columns, part in zip(columns_of(cell), mixtures(model), strict=True)
    )
    ratios = likelihood - logsumexp(likelihood + np.log(prior), axis=1, keepdims=True)
    sums = np.array([weights[bags == bag] @ ratios[bags == bag] for bag in np.unique(bags)])
    joint = np.log(prior) + sums
    with tempfile.TemporaryDirectory() as folder, quiet():
        X = as_kind(cell, few, Path(folder))[0]
        found = host(model.predict_bags_proba(X, bags, few.w))
        claims = host(model.verify(X, model.classes_[0], bags, few.w))
        shares = host(model.prevalence(X, few.w).shares)
    allowed = {"rtol": 1e-2, "atol": 1e-2} if cell["rows"] == "single" else {"rtol": 1e-6, "atol": 1e-7}
    assert_allclose(found, np.exp(joint - logsumexp(joint, axis=1, keepdims=True)), **allowed)
    assert_allclose(claims, sums[:, 0], **allowed)

    def total(values: np.ndarray) -> float:
        return float(weights @ logsumexp(ratios, b=values, axis=1)) / weights.sum()

    starts = [
        np.full(len(prior), 1.0 / len(prior)),
        np.maximum(shares, 1e-6) / np.maximum(shares, 1e-6).sum(),
    ]
    for start in starts:
        best = minimize(
            lambda values: -total(values),
            start,
            bounds=[(1e-12, 1.0)] * len(prior),
            constraints=[{"type": "eq", "fun": lambda values: values.sum() - 1.0}],
            method="SLSQP",
        )
        assert total(shares) >= -best.fun - (1e-4 if cell["rows"] == "single" else 1e-7)


AFTER: dict[str, Callable[[Cell, Data, Any], None]] = {
    "nothing": check_nothing,
    "tune": check_tuned,
    "stream": check_stream,
    "add": check_added_class,
    "impute": check_imputed,
    "export": check_exported,
    "bags": check_bags,
}


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("values", sorted(REFUSED, key=lambda values: sorted(map(repr, values))), ids=as_text)
def test_a_crossing_that_is_refused(values: frozenset[Value], tmp_path: Path) -> None:
    cell = {**default_cell(), **dict(values)}
    check_torch(cell)
    if cell["after"] == "tune" and cell["model"] == "mixture":
        cell["model"] = "classifier"
    data = make_data(cell, cells.N_SMALL)
    starts = [make_start(cell, data, columns) for columns in columns_of(cell)]
    with pytest.raises((ValueError, AttributeError)) as caught:
        AFTER[cell["after"]](cell, data, fitted(cell, data, starts, 2, tmp_path))
    # scikit-learn's `available_if` gives the reason as the cause.
    assert re.search(REFUSED[values], f"{caught.value} {caught.value.__cause__}")
