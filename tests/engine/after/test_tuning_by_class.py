"""Tuning: the objective against plain densities, the choice among models, and the temperature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import brute
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_brute, class_log_likelihood, random_model, random_rows
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skmix.engine.after.temperature import least_log_loss, log_losses
from skmix.engine.after.tuning import (
    Judge,
    Objective,
    Schedule,
    Scores,
    adam,
    score,
    tune,
)
from skmix.engine.records import FloatArray, IntArray, Options, Parameters, Regulariser
from skmix.engine.rows.labelled import Block
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.threads import workers

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


class Criterion(NamedTuple):
    """λ and T."""

    trade_off: float
    temperature: float = 1.0


def plain_objective(
    model: Parameters, covariance_type: str, prior: FloatArray, rows: Block, criterion: Criterion
) -> float:
    """Return the objective per unit of the rows' weight, by brute force."""
    own = brute.Rows(rows.X, rows.y, rows.row_weights)
    rule = brute.Rule(covariance_type, np.zeros(rows.X.shape[1]))
    return brute.tuning_objective(own, as_brute(model, covariance_type), prior, rule, *criterion)


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
            inside, self.structure, self.frame, self.prior, regulariser, 10.0 * self.rows.row_weights.sum()
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
    nothing = brute.Rows(np.empty((0, 2)), np.empty(0, dtype=np.int64), np.empty(0))

    def log_prior(at: FloatArray) -> float:
        """Σ −ν/2 (log |P| + tr(P⁻¹S)) over the covariances there are, and (α − 1) Σ log w."""
        rule = brute.Rule(covariance_type, np.zeros(2), rows, wanted, concentration)
        return brute.objective(nothing, as_brute(given.model(at), covariance_type), rule)

    given.with_priors(wanted, rows, concentration)
    with workers(1) as pool:
        plain, plain_gradient = bare.evaluate(numbers, given.rows, pool)
        origin, _ = bare.evaluate(np.zeros(given.size), given.rows, pool)
    found, gradient = given.value(numbers, criterion)
    there, _ = given.value(np.zeros(given.size), criterion)
    n_rows = 10.0 * given.rows.row_weights.sum() / (0.3 + 1.0 / 2.5)
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


# ---------------------------------------------------------------- models


def judged(floor: float = 0.0) -> tuple[Judge, Objective]:
    random = np.random.default_rng(0)
    X, codes = random.normal(size=(40, 3)), random.integers(0, 2, size=40)
    structure = structure_of("full")
    model = random_model(random, 3, 2, 3)
    objective = Objective(model, structure, measure(X, structure), np.array([0.5, 0.5]))
    return Judge(objective, Block(X, codes), np.full(3, floor)), objective


def test_more_errors_are_no_bargain() -> None:
    judge, objective = judged()
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
    judge, objective = judged()
    start, given = np.zeros(objective.size), judge.before
    judge.before = Scores(given.log_loss + 2.0, 1.0, 0.0, 1.0)
    judge.after = Scores(given.log_loss + 1.0, 1.0, 0.0, 1.0)
    judge.see(replace(objective, trade_off=0.1), start)
    best = judge.best
    worse = start.copy()
    worse[6:15] = -0.3  # the means
    judge.see(replace(objective, trade_off=0.2), worse)
    assert given.log_loss < judge.rounds[-1][1].log_loss < judge.before.log_loss
    assert judge.best is best
    assert (judge.trade_off, judge.since_better) == (0.1, 1)


@dataclass
class Bowl:
    """A stand-in for an objective around a model: −½ Σ a (x − b)², whatever the rows but for their mean."""

    parameters: float = 0.0
    size = 3
    curvature, top = np.array([1.0, 10.0, 0.1]), np.array([0.02, -0.01, 0.5])

    def evaluate(self, numbers: Any, rows: Block, *_: object) -> tuple[float, Any]:
        return 0.0, self.curvature * (self.top * rows.X.mean() - self.parameters - numbers)


class Watcher:
    """A stand-in for a judge that writes down what it sees; in one round the model is raised."""

    def __init__(self, patience: int = 10_000, raised: int = 0) -> None:
        self.seen: list[Any] = []
        self.patience, self.raised = patience, raised

    @property
    def since_better(self) -> int:
        return len(self.seen) - self.patience

    def see(self, objective: Any, numbers: Any) -> float | None:
        self.seen.append((objective.parameters, *numbers))
        return 0.003 if len(self.seen) == self.raised else None


@pytest.mark.parametrize("raised", [0, 2])
def test_adam_is_the_published_one_with_shrinking_steps_and_averaged_models(raised: int) -> None:
    """Kingma & Ba (2015), algorithm 1, with a step that falls linearly, and an average of its iterates.

    Where the model is raised, the numbers begin at zero again.
    """
    rows = Block(np.linspace(0.5, 1.5, 10)[:, None], np.zeros(10, dtype=np.int64))
    watcher, bowl, max_iter = Watcher(raised=raised), Bowl(), 200
    schedule = Schedule([], 4, max_iter, np.random.RandomState(7))
    given: Any = (bowl, rows, max_iter, watcher, None, schedule)
    adam(*given)
    x, average, m, v = np.zeros((4, 3))
    random, t = np.random.RandomState(7), 0
    for number in range(1, max_iter + 1):
        order = random.permutation(10)
        for batch in range(3):
            t += 1
            g = bowl.evaluate(x, rows.rows(order[batch::3]))[1]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            rate = 3e-3 * (600 - t + 1) / 600
            x = x + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            average = np.mean([average] * (t - 1) + [x], axis=0) if t <= 500 else 0.998 * average + 0.002 * x
        assert_allclose(watcher.seen[number - 1], [bowl.parameters, *average], rtol=1e-7, atol=1e-12)
        if number == raised:
            bowl, x, average = Bowl(0.003), np.zeros(3), np.zeros(3)
    assert len(watcher.seen) == max_iter
    assert_allclose(watcher.seen[-1][1:3], bowl.top[:2] - bowl.parameters, rtol=0.1)


def test_adam_stops_when_held_out_rows_lose_patience() -> None:
    watcher = Watcher(patience=3)
    rows = Block(np.ones((10, 1)), np.zeros(10, dtype=np.int64))
    schedule = Schedule([], 5, 50, np.random.RandomState(0))
    given: Any = (Bowl(), rows, 50, watcher, None, schedule)
    adam(*given)
    assert len(watcher.seen) == 3 + 5


def test_what_sank_below_the_floor_is_raised_before_it_is_judged() -> None:
    judge, objective = judged(floor=0.5)
    numbers = np.zeros(objective.size)
    numbers[-18:] = 1.0  # three triangles of six: whiteners grow, covariances shrink
    judge.before = judge.after = Scores(np.inf, 1.0, 0.0, 1.0)
    raised = judge.see(objective, numbers)
    assert raised is judge.best
    smallest = np.linalg.eigvalsh(judge.best.covariances).min()
    assert_allclose(smallest, 0.5, rtol=1e-6)


def test_scores_are_at_the_best_temperature_of_at_least_one() -> None:
    random = np.random.default_rng(1)
    joints, codes = 4.0 * random.normal(size=(200, 3)), random.integers(0, 3, size=200)
    weights = random.uniform(0.5, 2.0, size=200)
    found = score(joints, Block(np.zeros((200, 1)), codes, weights))
    assert (found.temperature, found.log_loss) == least_log_loss(joints, codes, weights)
    assert found.temperature > 1.0
    # Rows that are all right do not make probabilities sharper.
    assert score(0.1 * np.eye(3)[codes], Block(np.zeros((200, 1)), codes)).temperature == 1.0
    assert_allclose(found.error, np.average(joints.argmax(axis=1) != codes, weights=weights))
    assert_allclose(found.log_likelihood, np.average(joints[np.arange(200), codes], weights=weights))


def test_no_trial_of_an_optimiser_overflows() -> None:
    _, objective = judged()
    limits = objective.limits()
    assert limits.shape == (objective.size,)
    for sign in (-1.0, 1.0):
        point = objective.point(sign * limits)
        assert all(np.isfinite(each).all() for each in point[:3])
        # A kernel may grow by e^30, and move by a million of its deviations.
        assert 1e4 < np.abs(point.means - objective.parameters.means).max() < 1e8


# ---------------------------------------------------------------- whole trainings

PRIOR = np.array([0.3, 0.7])


def by(stages: Any, max_iter: int = 10, batch_size: int | None = None) -> Schedule:
    return Schedule(stages, batch_size, max_iter, np.random.RandomState(0))


def training() -> tuple[Block, Parameters]:
    """Return rows of two classes that overlap, with weights, and a poor model of them."""
    random = np.random.default_rng(0)
    X, codes = random_rows(random, 60, 2, 2)
    X = X * [1.0, 50.0] + [0.0, 1000.0]
    covariances = np.tile(np.cov(X.T) * [[1.0, 0.3], [0.3, 1.0]], (3, 1, 1))
    start = Parameters(np.full((3, 2), 1 / 3), X[:3].copy(), covariances)
    return Block(X, codes, random.uniform(0.5, 2.0, size=60)), start


def test_held_out_rows_choose_among_the_models_of_all_stages() -> None:
    rows, start = training()
    others = Block(rows.X[::2] + 0.3 * rows.X.std(axis=0), rows.y[::2], np.linspace(0.5, 2.0, 30))
    stages = [(1.0, 4), (0.1, 60), (0.0, 3)]
    judge = tune(start, PRIOR, rows, others, Options(), by(stages))
    assert judge.before is not None
    assert judge.after is not None
    # The best model is in the data's coordinates, as the given one.
    for model, scores in ((start, judge.before), (judge.best, judge.after)):
        expected = score(class_log_likelihood(others.X, model) + np.log(PRIOR), others)
        assert_allclose(scores.log_loss, expected.log_loss, rtol=1e-9)
        assert_allclose(scores.log_likelihood, expected.log_likelihood, rtol=1e-9)
        assert scores.error == pytest.approx(expected.error)
    losses = [own.log_loss if own.error <= judge.before.error else np.inf for _, own in judge.rounds]
    assert judge.after.log_loss == min(losses) < judge.before.log_loss
    tried = [trade_off for trade_off, _ in judge.rounds]
    assert judge.n_seen == len(tried)
    assert tried == sorted(tried, reverse=True)
    assert (tried.count(1.0), tried.count(0.0)) == (4, 3)
    # The first stage is the same alone, and the way to the best model ends at its round.
    alone = tune(start, PRIOR, rows, others, Options(), by(stages[:1]))
    assert alone.rounds == judge.rounds[:4]
    best = int(np.argmin(losses))
    assert judge.trade_off == tried[best] == judge.stages[-1][0]
    assert judge.stages[-1][1] == best + 1 - tried.index(tried[best])


def test_a_stage_ends_when_held_out_rows_gain_nothing_in_twenty_steps() -> None:
    rows, start = training()
    wrong = Block(rows.X, 1 - rows.y, rows.weights)
    judge = tune(start, PRIOR, rows, wrong, Options(), by([(0.3, 300), (0.2, 300)]))
    assert judge.trade_off is None
    # Patience begins anew in each stage.
    assert [trade_off for trade_off, _ in judge.rounds] == [0.3] * 20 + [0.2] * 20


def test_mini_batches_train_too_and_priors_hold() -> None:
    rows, start = training()
    wanted = np.cov(rows.X.T)
    prior = Options(covariance_prior=1e5, covariance_prior_scale=wanted, weight_prior=0.2)
    free, drawn = (
        tune(start, PRIOR, rows, None, options, by([(0.5, 20)], 20, batch_size=20))
        for options in (Options(), prior)
    )
    assert free.n_seen == 20
    reached, before = (
        plain_objective(model, "full", PRIOR, rows, Criterion(0.5, 3.0)) for model in (free.best, start)
    )
    assert reached > before + 0.01
    away = [np.abs(own.best.covariances / wanted - 1.0).max() for own in (drawn, free)]
    assert away[0] < 0.7 * away[1]


# ---------------------------------------------------------------- temperature


def scored(scale: float) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return log-joints, classes that are the likeliest in about seven of ten rows, and weights."""
    random = np.random.default_rng(1)
    joints = scale * random.normal(size=(200, 3))
    codes = np.where(random.uniform(size=200) < 0.6, joints.argmax(axis=1), random.integers(0, 3, size=200))
    return joints, codes, random.uniform(0.5, 2.0, size=200)


@pytest.mark.parametrize("lowest", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.1, 4.0, 1e3])
def test_no_other_temperature_is_better(scale: float, lowest: float) -> None:
    joints, codes, weights = scored(scale)

    def loss(log_temperature: float) -> float:
        logs = joints / np.exp(log_temperature)
        return float(-np.average(log_softmax(logs, axis=1)[np.arange(200), codes], weights=weights))

    temperature, found = least_log_loss(joints, codes, weights, lowest=lowest)
    best = minimize_scalar(loss, bounds=(np.log(lowest or 1e-6), np.log(1e6)), method="bounded")
    assert_allclose(found, loss(np.log(temperature)), rtol=1e-12)
    assert found <= min(best.fun, loss(np.log(lowest or 1e-6))) * (1.0 + 1e-12)
    # Probabilities of timid scores are sharpened only where that is allowed.
    assert (temperature == 1.0) == (lowest == 1.0 and scale < 1.0)
    assert (temperature < 1.0) == (lowest == 0.0 and scale < 1.0)
    losses = log_losses(joints, codes, temperature)
    assert_allclose(np.average(losses, weights=weights), found, rtol=1e-13)


def test_scores_that_say_nothing_are_ignored() -> None:
    random = np.random.default_rng(2)
    joints, codes = random.normal(size=(500, 2)), np.repeat([0, 1], 250)
    # The likelier class is the wrong one.
    joints[np.arange(500), codes] = joints.min(axis=1) - 1.0
    temperature, loss = least_log_loss(joints, codes)
    assert temperature == pytest.approx(1e6)
    assert_allclose(loss, np.log(2.0), rtol=1e-5)


def test_a_class_of_density_zero_stays_impossible() -> None:
    joints = np.array([[0.0, -1.0, -np.inf], [0.5, 0.0, -np.inf], [-1.0, -3.0, -np.inf]])
    codes = np.array([0, 1, 0])
    expected = least_log_loss(joints[:, :2], codes)
    assert least_log_loss(joints, codes) == pytest.approx(expected, rel=1e-12)
    assert_allclose(log_losses(joints, codes), log_losses(joints[:, :2], codes), rtol=1e-14)
    assert np.isinf(log_losses(joints, np.array([0, 2, 0]))[1])
