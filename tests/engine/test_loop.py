"""The loop of EM: when it stops, what ends it as failed, and snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from libraries import needs_torch, torch
from oracles import random_model, random_rows, stack
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, open_rows
from skmix.engine import loop as em
from skmix.engine.after import shifts as shift
from skmix.engine.device.streamed import StreamedRows
from skmix.engine.problem import open_source
from skmix.engine.records import FloatArray, Options, Parameters, Status
from skmix.engine.rows.blocks import BlockRows
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.rules.variational import Variational

# ---------------------------------------------------------------- stopping


def test_a_start_that_failed_has_no_log_likelihood() -> None:
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    start = Parameters(
        np.full((2, 2, 1), 0.5), np.array([[[0.0], [1.0]], [[0.5], [0.5]]]), np.ones((2, 2, 1, 1))
    )
    start.covariances[0] = 1e-3
    totals: list[FloatArray] = []
    result = fit(
        X, None, start, Options(floor=0.0, max_iter=5), callback=lambda run: totals.append(run.totals())
    )
    assert result.status[0] == Status.FAILED
    assert totals[-1][0] == -np.inf
    assert np.isfinite(totals[-1][1])


# ---------------------------------------------------------------- passes that lower the objective

X, Y = random_rows(np.random.default_rng(0), 200, 2, 3)
KINDS = ["array", "gaps", "blocks", "tensor", "streamed"]


def source_of(kind: str) -> Any:
    """Return the rows as a source of that kind."""
    gappy = X.copy()
    gappy[::3, 1] = np.nan
    if kind in ("blocks", "streamed"):
        blocks = open_rows(X, label=Y, chunk_rows=60).coded(np.arange(2))
        return BlockRows(blocks) if kind == "blocks" else StreamedRows(blocks, "cpu")
    return open_source(torch.as_tensor(X) if kind == "tensor" else gappy if kind == "gaps" else X, Y)


def broken(kind: Any, after: int) -> Any:
    """Return an M-step that halves the distance of means from the origin from some pass on."""
    improve, calls = kind.improve, [0]

    def worse(self: Any, *given: Any) -> Any:
        found, *others = improve(self, *given)
        calls[0] += 1
        return (replace(found, means=0.5 * found.means) if calls[0] > after else found), *others

    return worse


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=needs_torch if k in KINDS[3:] else ()) for k in KINDS]
)
@pytest.mark.parametrize(
    "changed",
    [{}, {"weight_prior": "hierarchical"}, {"inference": "variational"}],
    ids=["plain", "hierarchical", "variational"],
)
def test_a_start_whose_objective_falls_fails_with_both_numbers(
    kind: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stack([random_model(np.random.default_rng(1), 3, 2, 3)])
    options = Options(max_iter=8, tol=0.0, covariance_prior=5.0, **changed)
    assert em.fit(source_of(kind), start, options).status[0] == Status.STOPPED
    rule = Variational if "inference" in changed else Likelihood
    monkeypatch.setattr(rule, "improve", broken(rule, after=4))
    monkeypatch.setattr(Likelihood, "climbs", False)  # the core has an M-step of its own
    found = em.fit(source_of(kind), start, options)
    assert found.status[0] == Status.FAILED
    before, after = found.fell[0]
    assert before > after
    assert found.n_iter[0] < 8


def test_a_ridge_is_not_part_of_the_objective_and_may_lower_it() -> None:
    """scikit-learn's reg_covar widens kernels after the M-step."""
    starts = stack([random_model(np.random.default_rng(1), 6, 2, 3)])
    starts = em.fit(open_source(X, Y), starts, Options(max_iter=50, tol=0.0)).parameters
    found = em.fit(open_source(X, Y), starts, Options(max_iter=60, tol=0.0, ridge=1.0))
    assert np.diff(found.path[0].sum(axis=1)).min() < 0
    assert found.status[0] == Status.STOPPED


FELL = r"objective fell from -?\d+\.\d+ to -?\d+\.\d+ in one pass"


@pytest.mark.parametrize(
    ("estimator", "place"),
    [
        (SharedKernelMixture(3, init="random_from_data", random_state=0), (em.Passes, "step")),
        (SharedKernelMixture(3, random_state=0, group_shift=5.0), (shift, "improve")),
    ],
    ids=["mixture", "shifts"],
)
def test_estimators_say_that_the_objective_fell(
    estimator: Any, place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = getattr(*place), [0]

    def worse(*given: Any) -> Any:
        found, *others = whole(*given)
        calls[0] += 1
        return (replace(found, means=0.5 * found.means) if calls[0] == 2 else found), *others

    monkeypatch.setattr(*place, worse)
    monkeypatch.setattr(Likelihood, "climbs", False)  # the core makes passes of its own
    with pytest.raises(ValueError, match=FELL):
        estimator.fit(X, Y)


def test_a_start_that_fell_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    improve = Likelihood.improve

    def worse(self: Likelihood, *given: Any) -> Any:
        found, *others = improve(self, *given)
        scale = np.where(np.arange(len(found.means)) == 1, 0.5, 1.0) if len(found.means) == 2 else np.ones(1)
        return replace(found, means=scale[:, None, None] * found.means), *others

    monkeypatch.setattr(Likelihood, "improve", worse)
    monkeypatch.setattr(Likelihood, "climbs", False)  # the core has an M-step of its own
    with pytest.warns(UserWarning, match="1 of 2 starts failed. The objective fell"):
        model = SharedKernelMixture(3, n_init=2, random_state=0, max_iter=500).fit(X, Y)
    assert model.start_status_.tolist() == ["converged", "failed"]


@pytest.mark.parametrize("seed", range(3))
def test_nearly_singular_covariances_may_lose_digits(seed: int) -> None:
    """Two features that are nearly the same, far from the origin: a good fit loses digits in each pass."""
    random, classes = np.random.default_rng(seed), np.repeat([0, 1], 200)
    one = random.normal(size=400) + 2.0 * classes
    rows = np.column_stack([one + 1e3, one + 1e3 + 1e-7 * random.normal(size=400)])
    settings: Any = {"variance_floor": 1e-14, "covariance_prior": None, "tol": 0.0, "max_iter": 40}
    model = SharedKernelMixture(4, random_state=0, **settings)
    with pytest.warns(ConvergenceWarning):
        model.fit(rows, np.where(random.uniform(size=400) < 0.3, -1, classes + 1))
    assert model.start_status_.tolist() == ["stopped"]
