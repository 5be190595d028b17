"""Who is the best of the models that tuning looks at, and that none sinks below the floor."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_model
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skmix.engine.compute.threads import Workers, workers
from skmix.engine.covariances import structure_of
from skmix.engine.refine.discriminative import Judge, Scores, score
from skmix.engine.refine.local import Surroundings
from skmix.engine.refine.objective import Labelled, Objective
from skmix.engine.sources.summary import measure


def judged(pool: Workers, floor: float = 0.0) -> tuple[Judge, Objective]:
    random = np.random.default_rng(0)
    X, codes = random.normal(size=(40, 3)), random.integers(0, 2, size=40)
    structure = structure_of("full")
    around = Surroundings(random_model(random, 3, 2, 3), structure)
    objective = Objective(around, measure(X, structure), np.array([0.5, 0.5]))
    return Judge(objective, Labelled(X, codes), np.full(3, floor), pool), objective


def test_more_errors_are_no_bargain() -> None:
    with workers(1) as pool:
        judge, objective = judged(pool)
        given, numbers = judge.before, np.zeros(objective.surroundings.size)
        assert 0 < given.error < 1
        judge.after = Scores(np.inf, 0.0, 0.0, 1.0)
        judge.before = Scores(np.inf, given.error - 1e-3, 0.0, 1.0)
        judge.see(objective, numbers, 0.1)
        assert judge.trade_off is None
        assert judge.since_better == 1
        judge.before = Scores(np.inf, given.error, 0.0, 1.0)
        judge.see(objective, numbers, 0.1)
        assert judge.trade_off == 0.1
        assert judge.after == given


def test_what_sank_below_the_floor_is_raised_before_it_is_judged() -> None:
    with workers(1) as pool:
        judge, objective = judged(pool, floor=0.5)
        numbers = np.zeros(objective.surroundings.size)
        numbers[-18:] = 1.0  # three triangles of six: whiteners grow, covariances shrink
        judge.before = judge.after = Scores(np.inf, 1.0, 0.0, 1.0)
        raised = judge.see(objective, numbers, 0.0)
    assert raised is judge.best
    smallest = np.linalg.eigvalsh(judge.best.covariances).min()
    assert_allclose(smallest, 0.5, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 4.0])
def test_scores_are_at_the_best_temperature_of_at_least_one(scale: float) -> None:
    random = np.random.default_rng(1)
    joints = scale * random.normal(size=(200, 3))
    codes = np.where(random.uniform(size=200) < 0.6, joints.argmax(axis=1), random.integers(0, 3, size=200))
    weights = random.uniform(0.5, 2.0, size=200)

    def loss(temperature: float) -> float:
        logs = log_softmax(joints / temperature, axis=1)[np.arange(200), codes]
        return float(-np.average(logs, weights=weights))

    found = score(joints, Labelled(np.zeros((200, 1)), codes, weights))
    best = minimize_scalar(loss, bounds=(1.0, 50.0), method="bounded", options={"xatol": 1e-10})
    assert_allclose(found.log_loss, loss(found.temperature), rtol=1e-12)
    assert_allclose(found.log_loss, min(best.fun, loss(1.0)), rtol=1e-7)
    assert (found.temperature == 1.0) == (scale < 1.0)
    assert_allclose(found.error, np.average(joints.argmax(axis=1) != codes, weights=weights))
