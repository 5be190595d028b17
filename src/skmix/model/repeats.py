"""Fit one mixture from many starts, and keep all fits."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from ..engine.loop import run
from ..engine.numbers import join
from ..engine.records import Parameters
from .mixture import SharedKernelMixture
from .rows import enter
from .settings import Settings
from .solving import problem_of, record_of_start
from .starting import start_batches


def fit_each(
    model: SharedKernelMixture,
    X: ArrayLike,
    y: ArrayLike,
    random_states: Sequence[int | np.random.RandomState],
) -> list[SharedKernelMixture]:
    """Fit a mixture once per random state, all as one batch.

    With few rows, this is several times as fast as separate fits. A fit has the same bits alone and in any
    batch. The model has the settings: EM with full covariances and Gaussian kernels, without a
    `covariance_prior`. X (N, M) are the rows, y (N,) their classes. If a start failed, its ``start_status_``
    is 'failed', and its parameters are those before the failing pass.
    """
    needed = {"covariance_type": "full", "inference": "em", "covariance_prior": None, "tail": None}
    for name, value in needed.items():
        if getattr(model, name) != value:
            raise ValueError(f"fit_each needs {name}={value!r}, got {getattr(model, name)!r}.")
    model = clone(model).set_params(n_init=1)
    settings, training = Settings.of(model), enter(model, X, y).training()
    problem, start, _ = problem_of(settings, training)
    starts: list[Parameters] = []
    for random_state in random_states:
        of_state = replace(settings, random_state=random_state)
        starts += start_batches(of_state, training, problem, start)
    result = problem.leave_with(run(problem, join(starts)))
    mixtures = []
    for number, random_state in enumerate(random_states):
        mixture = copy(model)
        mixture.random_state = random_state
        record_of_start(settings, training, result, number).store(mixture)
        mixtures.append(mixture)
    return mixtures
