"""The hybrid objective against plain densities, and its gradient against differences of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_full, class_log_likelihood, random_model, random_rows
from scipy.special import log_softmax

from skmix.engine.compute.blocks import Block
from skmix.engine.compute.threads import workers
from skmix.engine.model import FloatArray, Parameters, Regulariser
from skmix.engine.refine.discriminative import Objective, total_weight
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


class Criterion(NamedTuple):
    """λ and T."""

    trade_off: float
    temperature: float = 1.0


def plain_objective(
    model: Parameters, covariance_type: str, prior: FloatArray, rows: Block, criterion: Criterion
) -> float:
    """Return the objective per unit of the rows' weight, from scipy's densities."""
    joints = class_log_likelihood(rows.X, model, covariance_type) + np.log(prior)
    every = np.arange(len(rows.y))
    conditional = log_softmax(joints / criterion.temperature, axis=1)[every, rows.y]
    terms = conditional + criterion.trade_off * joints[every, rows.y]
    return float(np.average(terms, weights=rows.weights))


class Problem:
    """A model, its surroundings, and rows."""

    def __init__(self, covariance_type: str, model: Parameters, rows: Block, prior: FloatArray) -> None:
        self.covariance_type, self.rows, self.prior = covariance_type, rows, prior
        self.structure = structure_of(covariance_type)
        self.frame = measure(rows.X, self.structure)
        inside = self.frame.enter(model.batch(), self.structure).take(0)
        self.objective = Objective(inside, self.structure, self.frame, prior)
        self.size = self.objective.size

    def with_priors(self, covariance: FloatArray, rows: float, concentration: float) -> None:
        """Put priors on covariances and weights beside ten times the rows."""
        unit = self.frame.scale[:, None] * self.frame.scale
        none = np.zeros(len(covariance))
        common = self.structure.common(covariance / unit)
        regulariser = Regulariser(none, none, rows, common, concentration)
        inside = self.objective.parameters
        self.objective = Objective(
            inside, self.structure, self.frame, self.prior, regulariser, 10.0 * total_weight(self.rows)
        )

    def model(self, numbers: FloatArray) -> Parameters:
        inside = self.objective.parameters_at(self.objective.point(numbers))
        return self.frame.leave(inside.batch(), self.structure).take(0)

    def plain(self, numbers: FloatArray, criterion: Criterion) -> float:
        return plain_objective(self.model(numbers), self.covariance_type, self.prior, self.rows, criterion)

    def value(self, numbers: FloatArray, criterion: Criterion, n_jobs: int = 1) -> tuple[float, FloatArray]:
        """Return the objective and its gradient."""
        with workers(n_jobs) as pool:
            return replace(self.objective, **criterion._asdict()).evaluate(numbers, self.rows, pool)


def problem(covariance_type: str, seed: int = 0, **sizes: int) -> tuple[Problem, np.random.Generator]:
    random = np.random.default_rng(seed)
    sizes = {"n_rows": 30, "n_kernels": 3, "n_classes": 3, "n_features": 3} | sizes
    X, codes = random_rows(random, sizes["n_rows"], sizes["n_classes"], sizes["n_features"])
    model = random_model(random, sizes["n_kernels"], sizes["n_classes"], sizes["n_features"], covariance_type)
    prior = random.dirichlet(np.full(sizes["n_classes"], 5.0))
    weights = random.uniform(0.5, 2.0, size=len(X))
    return Problem(covariance_type, model, Block(X, codes, weights), prior), random


@each_type
@pytest.mark.parametrize(("criterion", "n_features"), [(Criterion(0.0), 3), (Criterion(0.3, 2.5), 4)])
def test_the_objective_and_its_gradient(covariance_type: str, criterion: Criterion, n_features: int) -> None:
    given, random = problem(covariance_type, n_rows=15, n_features=n_features)
    numbers = 0.3 * random.normal(size=given.size)
    found, gradient = given.value(numbers, criterion)
    assert_allclose(found, given.plain(numbers, criterion), rtol=1e-11)
    steps = 1e-5 * np.eye(given.size)
    slopes = [
        (given.plain(numbers + step, criterion) - given.plain(numbers - step, criterion)) / 2e-5
        for step in steps
    ]
    assert_allclose(gradient, slopes, atol=2e-8, rtol=1e-6)


@each_type
def test_priors_of_the_fit_stay(covariance_type: str) -> None:
    given, random = problem(covariance_type, n_rows=15, n_features=2)
    root = random.normal(size=(2, 2))
    wanted, rows, concentration = root @ root.T + np.eye(2), 7.0, 1.8
    numbers, criterion = 0.3 * random.normal(size=given.size), Criterion(0.3, 2.5)
    bare = replace(given.objective, **criterion._asdict())

    def log_prior(at: FloatArray) -> float:
        """Σ −ν/2 (log |P| + tr(P⁻¹S)) over the covariances there are, and (α − 1) Σ log w."""
        model = given.model(at)
        full = as_full(model.covariances, covariance_type, *model.means.shape)
        each = [np.linalg.slogdet(P)[1] + np.trace(np.linalg.solve(P, wanted)) for P in full]
        total = each[0] if covariance_type == "tied" else sum(each)
        return float(-0.5 * rows * total + (concentration - 1.0) * np.log(model.weights).sum())

    given.with_priors(wanted, rows, concentration)
    with workers(1) as pool:
        plain, plain_gradient = bare.evaluate(numbers, given.rows, pool)
        origin, _ = bare.evaluate(np.zeros(given.size), given.rows, pool)
    found, gradient = given.value(numbers, criterion)
    there, _ = given.value(np.zeros(given.size), criterion)
    n_rows = 10.0 * total_weight(given.rows) / (0.3 + 1.0 / 2.5)
    # The constant depends on units, so that differences are compared.
    change = (found - plain) - (there - origin)
    assert_allclose(n_rows * change, log_prior(numbers) - log_prior(np.zeros(given.size)), rtol=1e-9)
    slopes = [
        (log_prior(numbers + step) - log_prior(numbers - step)) / 2e-5 for step in 1e-5 * np.eye(given.size)
    ]
    assert_allclose(n_rows * (gradient - plain_gradient), slopes, atol=1e-7, rtol=1e-6)


@each_type
def test_zero_is_the_model_itself(covariance_type: str) -> None:
    random = np.random.default_rng(1)
    X, codes = random_rows(random, 30, 2, 4)
    model = random_model(random, 3, 2, 4, covariance_type)
    given = Problem(covariance_type, model, Block(X, codes), np.array([0.5, 0.5]))
    same = given.model(np.zeros(given.size))
    for name in ("weights", "means", "covariances"):
        assert_allclose(getattr(same, name), getattr(model, name), rtol=1e-12, atol=1e-13)
    assert same.covariances.shape == model.covariances.shape


def directional(given: Problem, direction: FloatArray, criterion: Criterion, step: float) -> float:
    ahead, behind = given.plain(step * direction, criterion), given.plain(-step * direction, criterion)
    return (ahead - behind) / (2.0 * step)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_kernels_so_narrow_that_expanded_terms_cancel(covariance_type: str) -> None:
    random = np.random.default_rng(3)
    X = np.concatenate([1e4 + random.normal(size=(20, 2)), -1e4 + random.normal(size=(20, 2))])
    codes = random.integers(0, 2, size=40)
    full = np.tile(0.8 * np.eye(2), (3, 1, 1))
    covariances = full if covariance_type == "full" else np.full((3, 2), 0.8)
    means = np.array([[1e4, 1e4], [1e4 + 1.0, 1e4], [-1e4, -1e4]])
    model = Parameters(random.dirichlet(np.ones(3), size=2).T, means, covariances)
    given = Problem(covariance_type, model, Block(X, codes), np.array([0.4, 0.6]))
    criterion, direction = Criterion(0.1, 1.3), random.normal(size=given.size)
    found, gradient = given.value(np.zeros(given.size), criterion)
    assert_allclose(found, given.plain(np.zeros(given.size), criterion), rtol=1e-9)
    assert_allclose(gradient @ direction, directional(given, direction, criterion, 1e-5), rtol=1e-5)


@each_type
def test_rows_far_from_all_kernels_of_their_class(covariance_type: str) -> None:
    # The own class's density is below the smallest number beside that of the nearest kernel.
    means = np.array([[0.0, 0.0], [200.0, 0.0], [0.0, 200.0]])
    full = np.tile(np.eye(2), (3, 1, 1))
    covariances: Any = {"full": full, "tied": full[0], "diag": np.ones((3, 2)), "spherical": np.ones(3)}
    model = Parameters(np.array([[1.0, 0.0], [0.0, 0.7], [0.0, 0.3]]), means, covariances[covariance_type])
    X, codes = np.array([[0.1, 0.2], [199.0, 1.0], [1.0, 0.5], [100.0, 3.0]]), np.array([0, 0, 1, 1])
    given = Problem(covariance_type, model, Block(X, codes), np.array([0.5, 0.5]))
    for criterion in (Criterion(0.0), Criterion(0.1, 4.0)):
        found, gradient = given.value(np.zeros(given.size), criterion)
        assert_allclose(found, given.plain(np.zeros(given.size), criterion), rtol=1e-10)
        direction = np.random.default_rng(0).normal(size=given.size)
        assert_allclose(gradient @ direction, directional(given, direction, criterion, 1e-6), rtol=1e-5)


def test_a_weight_of_zero_stays_zero() -> None:
    given, random = problem("full")
    weights = np.array([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0], [0.0, 0.0, 0.0]])
    inside = replace(given.objective.parameters, weights=weights)
    around = replace(given.objective, parameters=inside, trade_off=0.5)
    with workers(1) as pool:
        _, gradient = around.evaluate(np.zeros(given.size), given.rows, pool)
    assert np.all(np.isfinite(gradient))
    assert_allclose(gradient[: weights.size][weights.ravel() == 0], 0.0, atol=1e-200)
    moved = around.point(random.normal(size=given.size)).weights
    assert_array_equal(moved == 0, weights == 0)


def test_threads_do_not_change_a_bit() -> None:
    given, random = problem("full", n_rows=6000)
    numbers = 0.1 * random.normal(size=given.size)
    one, two = (given.value(numbers, Criterion(0.1), n_jobs) for n_jobs in (1, 2))
    assert one[0] == two[0]
    assert_array_equal(one[1], two[1])
