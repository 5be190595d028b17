"""Calls of the loop by rows, codes and weights, until the estimators open their rows once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine import em
from ..engine.model import FloatArray, IntArray, Options, Parameters, Result
from ..engine.sources import open_source
from ..engine.sources.summary import Frame

Progress = Callable[[int, IntArray, FloatArray], None]


def fit(
    X: Any,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    row_weights: FloatArray | None = None,
    progress: Progress | None = None,
    keep: Callable[[Callable[[], em.RunState]], None] | None = None,
    resume: em.RunState | None = None,
) -> Result:
    """Run EM; see `skmix.engine.em.fit`."""

    def callback(run: em.Run) -> None:
        if progress is not None:
            progress(run.n_passes, run.active, run.log_likelihood.sum(axis=1))
        if keep is not None:
            keep(run.state)

    quiet = progress is None and keep is None
    return em.fit(
        open_source(X, classes, row_weights),
        starts,
        options,
        frame=frame,
        callback=None if quiet else callback,
        resume=resume,
    )


def shortlist(
    X: Any,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    n_best: int,
    frame: Frame | None = None,
    row_weights: FloatArray | None = None,
) -> Parameters:
    """Run all starts for five passes and return the best."""
    from dataclasses import replace

    import numpy as np

    short = fit(
        X, classes, starts, replace(options, max_iter=5, tol=0.0), frame=frame, row_weights=row_weights
    )
    return short.parameters.take(np.argsort(-short.objective, kind="stable")[:n_best])
