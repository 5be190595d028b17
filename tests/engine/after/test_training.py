"""Discriminative training: the objective against plain densities, and the choice of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import brute
import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, as_brute, random_model, random_rows

from skmix.engine.after.coordinates import Coordinates
from skmix.engine.after.tuning import Objective
from skmix.engine.records import FloatArray, Parameters, Regulariser
from skmix.engine.rows.blocks import Block
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.threads import workers

each_type = pytest.mark.parametrize("name", COVARIANCE_TYPES)
PRIOR = np.array([0.3, 0.7])


class Problem:
    """An objective around a model, and the same by brute force."""

    def __init__(
        self, name: str, model: Parameters, rows: Block, class_prior: FloatArray, prior: Any = None
    ) -> None:
        self.name, self.rows, self.class_prior = name, rows, class_prior
        self.structure = structure_of(name)
        self.frame = measure(rows.X, self.structure)
        around = Coordinates(self.frame.enter(model.batch(), self.structure).take(0), self.structure)
        covariance, n_rows, concentration = prior or (np.eye(rows.X.shape[1]), 0.0, 1.0)
        common = self.structure.common(covariance / self.frame.scale[:, None] / self.frame.scale)
        floor = np.zeros(len(covariance))
        regulariser = Regulariser(floor, None, n_rows, common, concentration)
        self.rule = brute.Rule(name, floor, n_rows, covariance, concentration)
        self.objective = Objective(around, rows, self.frame, class_prior, regulariser)
        self.size = around.size

    def model(self, numbers: FloatArray) -> Parameters:
        around = self.objective.around
        return self.frame.leave(around.parameters_of(around.candidate(numbers)).batch(), self.structure).take(
            0
        )

    def plain(self, numbers: FloatArray, trade_off: float, temperature: float) -> float:
        rows = brute.Rows(self.rows.X, self.rows.y, self.rows.row_weights)
        model = as_brute(self.model(numbers), self.name)
        return brute.tuning_objective(rows, model, self.class_prior, self.rule, trade_off, temperature)

    def slope(self, numbers: FloatArray, direction: FloatArray, *criterion: float) -> float:
        """Return the derivative in a direction, by central differences."""
        values = [self.plain(numbers + step * direction, *criterion) for step in (1e-6, -1e-6)]
        return (values[0] - values[1]) / 2e-6

    def value(self, numbers: FloatArray, *criterion: float, n_jobs: int = 1) -> tuple[float, FloatArray]:
        """Return the objective and its gradient, for λ and T."""
        trade_off, temperature = criterion
        with workers(n_jobs) as pool:
            objective = replace(self.objective, trade_off=trade_off, temperature=temperature)
            return objective.evaluate(numbers, pool)


def problem(
    name: str, n_rows: int = 15, n_features: int = 3, prior: Any = None
) -> tuple[Problem, np.random.Generator]:
    random = np.random.default_rng(0)
    X, codes = random_rows(random, n_rows, 3, n_features)
    model = random_model(random, 3, 3, n_features, name)
    rows = Block(X, codes, random.uniform(0.5, 2.0, size=n_rows))
    return Problem(name, model, rows, random.dirichlet(np.full(3, 5.0)), prior), random


@each_type
@pytest.mark.parametrize(
    ("criterion", "n_features", "prior"),
    [
        ((0.0, 1.0), 3, None),
        ((0.3, 2.5), 4, None),
        ((0.3, 2.5), 2, (np.array([[2.0, 0.7], [0.7, 1.5]]), 0.7, 1.08)),
    ],
)
def test_the_objective_and_its_gradient(
    name: str, criterion: tuple[float, float], n_features: int, prior: Any
) -> None:
    given, random = problem(name, n_features=n_features, prior=prior)
    numbers = 0.3 * random.normal(size=given.size)
    value, gradient = given.value(numbers, *criterion)
    if prior is None:
        assert_allclose(value, given.plain(numbers, *criterion), rtol=1e-11)
    else:
        # The priors' constant depends on units, so that differences are compared.
        start = np.zeros(given.size)
        expected = given.plain(numbers, *criterion) - given.plain(start, *criterion)
        assert_allclose(value - given.value(start, *criterion)[0], expected, rtol=1e-9)
    slopes = [given.slope(numbers, direction, *criterion) for direction in np.eye(given.size)]
    assert_allclose(gradient, slopes, atol=2e-8, rtol=1e-6)


@pytest.mark.parametrize("name", ["full", "diag"])
def test_kernels_so_narrow_that_moments_about_zero_cancel(name: str) -> None:
    random = np.random.default_rng(3)
    X = np.concatenate([1e6 + random.normal(size=(20, 2)), -1e6 + random.normal(size=(20, 2))])
    codes = random.integers(0, 2, size=40)
    covariances = np.tile(0.8 * np.eye(2), (3, 1, 1)) if name == "full" else np.full((3, 2), 0.8)
    means = np.array([[1e6, 1e6], [1e6 + 1.0, 1e6], [-1e6, -1e6]])
    model = Parameters(random.dirichlet(np.ones(3), size=2).T, means, covariances)
    given = Problem(name, model, Block(X, codes), PRIOR)
    start, direction = np.zeros(given.size), random.normal(size=given.size)
    value, gradient = given.value(start, 0.1, 1.3)
    assert_allclose(value, given.plain(start, 0.1, 1.3), rtol=1e-9)
    assert_allclose(gradient @ direction, given.slope(start, direction, 0.1, 1.3), rtol=1e-5)


@each_type
@pytest.mark.parametrize("criterion", [(0.0, 1.0), (0.1, 4.0)])
def test_rows_far_from_all_kernels_of_their_class(name: str, criterion: tuple[float, float]) -> None:
    """The class's density is below the smallest number beside that of the nearest kernel."""
    means, full = np.array([[0.0, 0.0], [200.0, 0.0], [0.0, 200.0]]), np.tile(np.eye(2), (3, 1, 1))
    covariances: Any = {"full": full, "tied": full[0], "diag": np.ones((3, 2)), "spherical": np.ones(3)}
    model = Parameters(np.array([[1.0, 0.0], [0.0, 0.7], [0.0, 0.3]]), means, covariances[name])
    X, codes = np.array([[0.1, 0.2], [199.0, 1.0], [1.0, 0.5], [100.0, 3.0]]), np.array([0, 0, 1, 1])
    given = Problem(name, model, Block(X, codes), np.array([0.5, 0.5]))
    start, direction = np.zeros(given.size), np.random.default_rng(0).normal(size=given.size)
    value, gradient = given.value(start, *criterion)
    assert_allclose(value, given.plain(start, *criterion), rtol=1e-10)
    assert_allclose(gradient @ direction, given.slope(start, direction, *criterion), rtol=1e-5)


# ---------------------------------------------------------------- whole trainings


def training() -> tuple[Block, Parameters]:
    """Return rows of two classes that overlap, with weights, and a poor model of them."""
    random = np.random.default_rng(0)
    X, codes = random_rows(random, 60, 2, 2)
    X = X * [1.0, 50.0] + [0.0, 1000.0]
    covariances = np.tile(np.cov(X.T) * [[1.0, 0.3], [0.3, 1.0]], (3, 1, 1))
    start = Parameters(np.full((3, 2), 1 / 3), X[:3].copy(), covariances)
    return Block(X, codes, random.uniform(0.5, 2.0, size=60)), start
