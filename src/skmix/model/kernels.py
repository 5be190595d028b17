"""The kernels of a fitted mixture, for rooms above that describe them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..engine import scoring
from ..engine.records import FloatArray, Parameters
from ..engine.structures import structure_of
from .fitted import parameters_of
from .settings import Settings


@dataclass(frozen=True)
class Kernels:
    """The K kernels of a fitted mixture in M features."""

    parameters: Parameters
    covariance_type: str
    is_estimate: bool  # whether a fit has moved them: frozen kernels are known
    n_jobs: int

    @classmethod
    def of(cls, model: Any) -> Self:
        """Return the kernels of a fitted mixture."""
        settings = Settings.of(model)
        is_estimate = settings.freeze != "kernels"
        return cls(parameters_of(model), model.covariance_type_, is_estimate, settings.n_threads)

    @property
    def means(self) -> FloatArray:
        """The means (K, M)."""
        return self.parameters.means

    @property
    def degrees(self) -> FloatArray | None:
        """The degrees of freedom (K,) of Student's t; None for Gaussians."""
        return self.parameters.tail.degrees

    @property
    def is_shared(self) -> bool:
        """Whether all kernels have one covariance."""
        return structure_of(self.covariance_type).shared

    @property
    def form(self) -> str:
        """The covariances that one kernel may have: 'full', 'diag' or 'spherical'."""
        structure = structure_of(self.covariance_type)
        return "full" if structure.triangular else "spherical" if structure.isotropic else "diag"

    @cached_property
    def covariances(self) -> FloatArray:
        """The full covariances (K, M, M); of Student's t, the matrices of its scale."""
        stored, shape = self.parameters.covariances, self.means.shape
        full = structure_of(self.covariance_type).to_full(stored[None], *shape)[0]
        return np.broadcast_to(full, (len(self.means), *full.shape[1:]))

    def moved(self, shifts: FloatArray) -> Self:
        """Return the kernels with means that are moved by shifts (K, M)."""
        return replace(self, parameters=replace(self.parameters, means=self.means + shifts))

    def draw(self, n_each: int, seed: int) -> FloatArray:
        """Draw as many rows from each kernel; shape (K · n_each, M), in the order of the kernels."""
        n_kernels = len(self.means)
        # Each kernel is a class of its own.
        apart = replace(self.parameters, weights=np.eye(n_kernels))
        kernels = np.repeat(np.arange(n_kernels), n_each)
        return scoring.draw(apart, self.covariance_type, kernels, np.random.RandomState(seed))[0]

    def log_densities(self, X: FloatArray) -> FloatArray:
        """Return the log-densities (n, K) of rows X (n, M) under each kernel."""
        return scoring.kernel_log_densities(X, self.parameters, self.covariance_type, self.n_jobs)
