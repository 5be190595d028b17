"""The records: what applies to all of their arrays, sums of statistics, and the best of several starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from libraries import LIBRARIES, each_library
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, random_model

from skmix.engine.kernels import StudentT
from skmix.engine.numbers import join, to_numpy
from skmix.engine.records import Parameters, Result, Statistics, Status, living_kernels
from skmix.engine.scoring import class_log_likelihood
from skmix.engine.structures import structure_of


def parameters(random: np.random.Generator, n_starts: int = 3) -> Parameters:
    shapes = (2, 2), (2, 1), (2, 1, 1), (2,)
    *own, degrees = (random.uniform(size=(n_starts, *shape)) for shape in shapes)
    return Parameters(*own, tail=StudentT(degrees))


def arrays_of(record: Parameters) -> list[np.ndarray]:
    own = record.weights, record.means, record.covariances, record.tail.degrees
    return [to_numpy(array) for array in own]


@each_library
def test_starts_are_taken_put_and_joined(library: str) -> None:
    random = np.random.default_rng(0)
    here = parameters(random)
    there, other = here.map(LIBRARIES[library]), parameters(random, 2)
    for index in ([2, 0], np.array([True, False, True]), slice(1, 3), 1):
        taken = there.take(index)
        for array, expected in zip(arrays_of(taken), arrays_of(here), strict=True):
            assert_array_equal(array, expected[index])
        assert taken.class_prior is None
    for index in ([2, 0], np.array([True, False, True])):
        found, put = there.put(index, other.map(LIBRARIES[library])), here.put(index, other)
        every = zip(arrays_of(put), arrays_of(other), arrays_of(here), arrays_of(found), strict=True)
        for array, new, old, elsewhere in every:
            assert_array_equal(array[index], new)
            assert_array_equal(array[1], old[1])
            assert_array_equal(elsewhere, array)
    both = join([there, other.map(LIBRARIES[library])])
    for array, *parts in zip(arrays_of(both), arrays_of(here), arrays_of(other), strict=True):
        assert_array_equal(array, np.concatenate(parts))
    assert both.class_prior is None


def test_a_batch_of_one_shares_memory() -> None:
    here = parameters(np.random.default_rng(0))
    one = here.take(0)
    assert one.batch().means.shape == (1, 2, 1)
    one.batch().means[0] = 5.0
    assert_array_equal(one.means, 5.0)


@pytest.mark.parametrize("robust", [False, True])
def test_statistics_of_disjoint_rows_add(robust: bool) -> None:
    random = np.random.default_rng(0)

    def some() -> Statistics:
        shapes = (1, 3), (1, 2, 3), (1, 2, 4), (1, 2, 5)
        of_tail = (random.uniform(size=(1, 2)), random.uniform(size=(1, 2))) if robust else ()
        return Statistics(*(random.uniform(size=shape) for shape in shapes), of_tail)

    def arrays(statistics: Statistics) -> list[np.ndarray]:
        *sums, of_tail = vars(statistics).values()
        return [*sums, *of_tail]

    one, two = some(), some()
    for found, a, b in zip(arrays(one.plus(two)), arrays(one), arrays(two), strict=True):
        assert_array_equal(found, a + b)


def test_the_best_start_is_that_of_the_highest_objective_that_did_not_fail() -> None:
    objective = np.array([-5.0, -1.0, -3.0, -2.0])
    status = np.array([Status.CONVERGED, Status.FAILED, Status.STOPPED, Status.STOPPED])
    own, fell = parameters(np.random.default_rng(0), 4), np.full((4, 2), np.nan)
    result = Result(own, status, np.ones(4, dtype=np.int64), np.zeros((4, 1)), objective, [], fell)
    assert result.best == 3
    assert replace(result, status=np.full(4, Status.STOPPED)).best == 1


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_leaving_dead_kernels_out_changes_no_density(covariance_type: str) -> None:
    random = np.random.default_rng(0)
    model = random_model(random, 5, 3, 2, covariance_type)
    model.weights[[1, 3]] = 0.0
    model.weights[2, 1] = 0.0  # one that only some classes have lives
    model.weights[:] /= model.weights.sum(axis=0)
    left = living_kernels(model, structure_of(covariance_type))
    assert left.means.shape == (3, 2)
    X = random.normal(size=(20, 2))
    before = class_log_likelihood(X, model, covariance_type)
    assert_allclose(class_log_likelihood(X, left, covariance_type), before, rtol=1e-12)
    assert living_kernels(left, structure_of(covariance_type)) is left
