"""Who is the best of the models that tuning looks at, and that none sinks below the floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_model
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skmix.engine.compute.threads import Workers, workers
from skmix.engine.covariances import structure_of
from skmix.engine.refine.discriminative import Judge, Labelled, Objective, Scores, adam, score
from skmix.engine.sources.summary import measure


def judged(pool: Workers, floor: float = 0.0) -> tuple[Judge, Objective]:
    random = np.random.default_rng(0)
    X, codes = random.normal(size=(40, 3)), random.integers(0, 2, size=40)
    structure = structure_of("full")
    model = random_model(random, 3, 2, 3)
    objective = Objective(model, structure, measure(X, structure), np.array([0.5, 0.5]))
    return Judge(objective, Labelled(X, codes), np.full(3, floor), pool), objective


def test_more_errors_are_no_bargain() -> None:
    with workers(1) as pool:
        judge, objective = judged(pool)
        given, numbers = judge.before, np.zeros(objective.size)
        assert 0 < given.error < 1
        judge.after = Scores(np.inf, 0.0, 0.0, 1.0)
        judge.before = Scores(np.inf, given.error - 1e-3, 0.0, 1.0)
        judge.see(replace(objective, trade_off=0.1), numbers)
        assert judge.trade_off is None
        assert judge.since_better == 1
        judge.before = Scores(np.inf, given.error, 0.0, 1.0)
        judge.see(replace(objective, trade_off=0.1), numbers)
        assert judge.trade_off == 0.1
        assert judge.after == given


def test_the_best_model_stays_when_a_worse_one_follows() -> None:
    """A model that beats the given one, but not the best so far, is not taken."""
    with workers(1) as pool:
        judge, objective = judged(pool)
        start = np.zeros(objective.size)
        given = judge.before
        assert given is not None
        judge.before = Scores(given.log_loss + 2.0, 1.0, 0.0, 1.0)
        judge.after = Scores(given.log_loss + 1.0, 1.0, 0.0, 1.0)
        judge.see(replace(objective, trade_off=0.1), start)
        assert judge.trade_off == 0.1
        best = judge.best
        worse = start.copy()
        worse[6:15] = -0.3  # the means
        judge.see(replace(objective, trade_off=0.2), worse)
        _, scores = judge.rounds[-1]
        assert given.log_loss < scores.log_loss < judge.before.log_loss
        assert judge.best is best
        assert (judge.trade_off, judge.since_better) == (0.1, 1)


class Bowl:
    """A stand-in for an objective: −½ Σ a (x − b)², whatever the rows but for their mean."""

    size = 3
    curvature, top = np.array([1.0, 10.0, 0.1]), np.array([0.02, -0.01, 0.5])

    def evaluate(self, numbers: Any, rows: Labelled, *_: object) -> tuple[float, Any]:
        return 0.0, self.curvature * (self.top * rows.X.mean() - numbers)


class Watcher:
    """A stand-in for a judge that writes down what it sees."""

    def __init__(self, patience: int = 10_000) -> None:
        self.seen: list[Any] = []
        self.patience = patience

    @property
    def since_better(self) -> int:
        return len(self.seen) - self.patience

    def see(self, objective: object, numbers: Any) -> None:
        self.seen.append(numbers.copy())


def test_adam_is_the_published_one_with_shrinking_steps_and_averaged_models() -> None:
    """Kingma & Ba (2015), algorithm 1, with a step that falls linearly, and an average of its iterates."""
    rows = Labelled(np.linspace(0.5, 1.5, 10)[:, None], np.zeros(10, dtype=np.int64))
    watcher, bowl, max_iter = Watcher(), Bowl(), 400
    given: Any = (bowl, rows, max_iter, max_iter, watcher, None, 4, np.random.RandomState(7))
    adam(*given)
    x, average, m, v = np.zeros((4, 3))
    random, t = np.random.RandomState(7), 0
    for number in range(max_iter):
        order = random.permutation(10)
        for batch in range(3):
            t += 1
            g = bowl.evaluate(x, rows.take(order[batch::3]))[1]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            rate = 3e-3 * (1200 - t + 1) / 1200
            x = x + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            average = np.mean([average] * (t - 1) + [x], axis=0) if t <= 500 else 0.998 * average + 0.002 * x
        assert_allclose(watcher.seen[number], average, rtol=1e-7, atol=1e-12)
    assert len(watcher.seen) == max_iter
    assert_allclose(watcher.seen[-1][:2], bowl.top[:2], rtol=0.1)


def test_adam_stops_when_held_out_rows_lose_patience() -> None:
    watcher = Watcher(patience=3)
    rows = Labelled(np.ones((10, 1)), np.zeros(10, dtype=np.int64))
    given: Any = (Bowl(), rows, 50, 50, watcher, None, 5, np.random.RandomState(0))
    adam(*given)
    assert len(watcher.seen) == 3 + 5


def test_what_sank_below_the_floor_is_raised_before_it_is_judged() -> None:
    with workers(1) as pool:
        judge, objective = judged(pool, floor=0.5)
        numbers = np.zeros(objective.size)
        numbers[-18:] = 1.0  # three triangles of six: whiteners grow, covariances shrink
        judge.before = judge.after = Scores(np.inf, 1.0, 0.0, 1.0)
        raised = judge.see(objective, numbers)
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
