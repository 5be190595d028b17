"""A fit that goes on from a snapshot of any pass ends like the one it was taken from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from skmix.engine.loop import fit
from skmix.engine.snapshots import Snapshot
from skmix.engine.types import Options, Parameters

Golden = Callable[[str], dict[str, NDArray[Any]]]


def snapshots_of(X: Any, classes: Any, starts: Parameters, options: Options) -> tuple[list[Snapshot], Any]:
    """Return the snapshot of every pass, all of them taken when the fit is over, and its result."""
    later: list[Callable[[], Snapshot]] = []
    result = fit(X, classes, starts, options, keep=later.append)
    return [take() for take in later], result


@pytest.mark.parametrize("batch", [1, 6])
def test_every_snapshot_leads_to_the_same_end(golden: Golden, batch: int) -> None:
    # The rule stops in pass 24, while a latched class still moves: who forgets that goes on.
    reference = golden("digits_3d_latched")
    X, classes = reference["X"], np.unique(reference["y"], return_inverse=True)[1]
    weights, means, covariances = (reference[name][0] for name in ("weights", "means", "covariances"))
    shifts = 0.02 * np.random.default_rng(0).normal(size=(batch, *means.shape))
    shifts[0] = 0.0
    starts = Parameters(
        np.tile(weights, (batch, 1, 1)), means + shifts, np.tile(covariances, (batch, 1, 1, 1))
    )
    options = Options(floor=0.0, tol=0.1, stopping="per-class", max_iter=100)
    snapshots, whole = snapshots_of(X, classes, starts, options)
    assert whole.n_iter[0] == 24
    assert len(snapshots) == whole.n_iter.max()
    assert batch == 1 or len(set(whole.n_iter.tolist())) > 1
    for number in (1, 12, *range(20, len(snapshots) + 1)):
        taken = snapshots[number - 1]
        assert taken.n_iter.max() == number
        resumed = fit(X, classes, starts, options, resume=taken)
        assert_array_equal(resumed.n_iter, whole.n_iter)
        assert_array_equal(resumed.status, whole.status)
        assert_allclose(resumed.objective, whole.objective, rtol=1e-11)
        assert_allclose(resumed.parameters.means, whole.parameters.means, rtol=1e-8, atol=1e-10)
        for path, other in zip(resumed.path, whole.path, strict=True):
            assert_allclose(path, other, rtol=1e-10)


def test_the_total_rule_remembers_the_last_pass(golden: Golden) -> None:
    reference = golden("illustration")
    X, classes = reference["X"], np.unique(reference["y"], return_inverse=True)[1]
    start = Parameters(reference["weights"][0], reference["means"][0], reference["covariances"][0]).batch()
    options = Options(tol=1e-3)
    snapshots, whole = snapshots_of(X, classes, start, options)
    resumed = fit(X, classes, start, options, resume=snapshots[-2])
    assert resumed.n_iter[0] == whole.n_iter[0] == len(snapshots)
