"""Maximum likelihood with priors, variance floor and freezing: the M-step of EM.

Equation labels are those of ``docs/notation.md``: (M1) weights, (M2) means, (M3) covariances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..conditions import rare
from ..exponentials import EMPTY_MASS
from ..kernels import StudentT
from ..numbers import LARGEST_CANCELLATION, TINY, Record, clip, namespace, where
from ..records import BoolArray, Factor, FloatArray, Parameters, Regulariser, Statistics
from ..structures import Structure
from .weights import (
    divergence_of_weights,
    improve_hierarchical,
    posterior_counts,
    with_concentration,
    with_mean_weights,
    without_posterior,
)

# The next parameters, their factor, and the kernels (R, K) whose covariances lost digits.
Improved = tuple[Parameters, Factor, BoolArray]


@dataclass(frozen=True)
class Likelihood(Record):
    """The update rule of EM, for R starts in the coordinates of the frame."""

    structure: Structure
    regulariser: Regulariser  # floor, ridge and priors
    freeze: str | None = None  # which parameters stay at their starting values: 'kernels' or 'weights'
    learn_degrees: bool = False  # whether t kernels learn their degrees of freedom
    prior: None = None  # parameters other than weights have no posterior
    precision: str = "float64"  # of products with rows

    @property
    def bounded(self) -> bool:
        """Whether the objective is a lower bound of the log-evidence, and weights have a posterior."""
        return self.regulariser.hierarchical is not None

    @property
    def monotone(self) -> bool:
        """Whether no pass lowers the objective; a ridge is not part of it and may."""
        return self.regulariser.ridge is None

    @property
    def climbs(self) -> bool:
        """Whether the compiled core knows the M-step of Gaussian kernels, see `RowSource.climb`."""
        return not (self.bounded or self.freeze or self.learn_degrees)

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return parameters to start a pass from, raised to the floor unless frozen, and their factor."""
        if self.bounded:
            parameters = with_concentration(without_posterior(parameters))
        if self.freeze == "kernels":
            n_features = parameters.means.shape[-1]
            return parameters, self.structure.factor(parameters.covariances, n_features)
        # A start below the floor would look degenerate, and its squares might overflow.
        covariances, factor = self.structure.raised(parameters.covariances, self.regulariser.floor)
        return replace(parameters, covariances=covariances), factor

    # ------------------------------------------------------------ the M-step

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> Improved:
        """Do the M-step: return new parameters, their factor, and kernels (R, K) that lost digits.

        Moments are about `origins` (R, K, M); `factor` belongs to `previous`; an empty kernel stays as it is.
        A start that is not usable in the new factor has degenerated. Kernels that are narrow and far from
        their origin lose digits of the covariance; they need another E-step about their new means.
        """
        mass, class_prior = assign_unlabelled(statistics.mass, previous)
        following = Parameters(
            previous.weights, previous.means, previous.covariances, class_prior, tail=previous.tail
        )
        if self.freeze == "kernels":
            inaccurate = statistics.mass[..., 0] < 0.0  # none: no kernel moves
        else:
            following, factor, inaccurate = self._improve_kernels(statistics, origins, following, factor)
        if self.freeze != "weights":
            following = self._improve_weights(mass, following, previous)
        return following, factor, inaccurate

    def _improve_weights(self, mass: FloatArray, following: Parameters, previous: Parameters) -> Parameters:
        """Return the parameters with new weights, for the mass (R, K, L) of each kernel in each class."""
        xp, regulariser = namespace(mass), self.regulariser
        mass = where(mass > EMPTY_MASS, mass, 0.0)
        if self.bounded:
            assert previous.concentration is not None
            learn = regulariser.hierarchical != "given"
            counts = mass / regulariser.unit
            return improve_hierarchical(following, counts, previous.concentration, learn=learn)
        mass = mass + (regulariser.weight_prior - 1.0)
        sizes = xp.sum(mass, axis=1, keepdims=True)
        weights = mass / clip(sizes, TINY, np.inf)  # (M1)
        # In a stream, a class without rows so far keeps its weights.
        return replace(following, weights=where(sizes > 0, weights, previous.weights))

    def _improve_kernels(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> Improved:
        """Return the parameters with new kernels, their factor, and kernels (R, K) that lost digits."""
        structure, tail, xp = self.structure, previous.tail, namespace(origins)
        mass, first, second = xp.sum(statistics.mass, axis=-1), statistics.first, statistics.second
        # Of t kernels, m_k in the moments is Σ w E[u]; the scatter is still divided by the number of rows.
        mass_in_moments = tail.mass_in_moments(mass, statistics.of_tail)
        alive = mass > EMPTY_MASS
        some_empty = rare(xp.reshape(~alive, (-1,))) is not None
        if some_empty:
            # Empty kernels get a covariance that can be factored; the previous one is restored below.
            mass, mass_in_moments = where(alive, mass, TINY), where(alive, mass_in_moments, TINY)
            first = where(alive[..., None], first, 0.0)
            identity = structure.pack(structure.common(xp.ones_like(first[0, 0])))
            # Of kernels with one covariance only the sum of the moments is defined, so none may be left out.
            defined = xp.any(alive, axis=1, keepdims=True) if structure.shared else alive
            second = where(defined[..., None], second, TINY * identity)
        offset = first / mass_in_moments[..., None]
        means = origins + offset  # (M2)
        if tail.weighted:
            sums = mass, offset * xp.sqrt(mass_in_moments / mass)[..., None], second
        else:
            sums = mass, offset, second
        covariances, next_factor = structure.update(sums, self.regulariser)  # (M3)
        inaccurate = lost_digits(offset, next_factor, structure, self.precision)
        if self.learn_degrees and isinstance(tail, StudentT):
            tail = tail.improve(mass, alive, statistics.of_tail)
        if some_empty:
            inaccurate = alive & inaccurate
            means = _chosen(alive, means, previous.means)
            stacks = map(structure.by_kernel, (covariances, previous.covariances))
            covariances = xp.reshape(_chosen(alive, *stacks), covariances.shape)
            next_factor = Factor(
                _chosen(alive, next_factor.whitener, factor.whitener),
                _chosen(alive, next_factor.log_determinant, factor.log_determinant),
                next_factor.usable,
            )
        return replace(previous, means=means, covariances=covariances, tail=tail), next_factor, inaccurate

    # ------------------------------------------------------------ the objective, and the end

    def log_prior(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return what the objective (R,) adds to the log-likelihood: log-priors, up to a constant.

        With hierarchical weights the objective is the lower bound of the log-evidence in which these are
        integrated out; it is −∞ for starts whose weights have no posterior yet.
        """
        regulariser, xp = self.regulariser, namespace(parameters.means)
        total: FloatArray = xp.zeros_like(parameters.means[:, 0, 0])
        if regulariser.prior_rows:
            total = self.structure.log_prior(factor, regulariser)
        if regulariser.weight_prior != 1.0:
            # A start may have weights of zero.
            logs = xp.sum(xp.log(clip(parameters.weights, TINY, 1.0)), axis=(1, 2))
            total = total + (regulariser.weight_prior - 1.0) * logs
        if self.bounded:
            known, counts = posterior_counts(parameters)
            assert parameters.concentration is not None
            divergence = regulariser.unit * divergence_of_weights(counts, parameters.concentration)
            total = total - where(known, divergence, np.inf)
        return total

    def finish(self, parameters: Parameters) -> Parameters:
        """Return the parameters as point estimates: weights that have a posterior become its means."""
        if not self.bounded:
            return parameters
        assert parameters.concentration is not None
        return with_mean_weights(parameters, parameters.concentration[..., None])


def _chosen(chosen: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
    """Return `new` (R, K, …) where `chosen` (R, K), otherwise `old`.

    An array (R, 1, …) that all kernels share is `new` if any of them is chosen.
    """
    xp = namespace(new)
    chosen = xp.any(chosen, axis=1, keepdims=True) if new.shape[1] == 1 else chosen
    return xp.where(xp.reshape(chosen, chosen.shape + (1,) * (new.ndim - 2)), new, old)


def with_frozen(freeze: str | None, parameters: Parameters, previous: Parameters) -> Parameters:
    """Return parameters with the frozen ones restored from `previous`."""
    if freeze == "weights":
        return replace(parameters, weights=previous.weights)
    if freeze == "kernels":
        return replace(parameters, means=previous.means, covariances=previous.covariances, tail=previous.tail)
    return parameters


def lost_digits(offset: FloatArray, factor: Factor, structure: Structure, precision: str) -> BoolArray:
    """Return the kernels (R, K) that are too narrow for the offset (R, K, M) of their means."""
    largest = LARGEST_CANCELLATION[precision]
    return namespace(offset).any(offset**2 / largest > 1.0 / structure.precisions(factor), axis=-1)


# ---------------------------------------------------------------- rows without a label


def for_pass(parameters: Parameters) -> Parameters:
    """Return the parameters of an E-step.

    With class priors, weights (R, K, L + 1) have a last column for rows without a label. Such a row comes
    from kernel k with probability Σ_j Pr(class j) π_kj.
    """
    if parameters.class_prior is None:
        return parameters
    mixed = parameters.weights @ parameters.class_prior[..., None]
    return replace(parameters, weights=namespace(mixed).concat([parameters.weights, mixed], axis=-1))


def assign_unlabelled(mass: FloatArray, previous: Parameters) -> tuple[FloatArray, FloatArray | None]:
    """Split the mass of unlabelled rows, the last column of (R, K, L + 1), among the classes: their E-step.

    Returns the mass (R, K, L) of each class and the class shares (R, L). If every row has a label, the mass
    is returned as it is, and None for the shares.
    """
    if previous.class_prior is None:
        return mass, None
    xp = namespace(mass)
    joint = previous.weights * previous.class_prior[:, None, :]
    mixed = xp.sum(joint, axis=-1, keepdims=True)
    labelled = mass[..., :-1] + mass[..., -1:] * (joint / xp.where(mixed > 0, mixed, 1.0))
    sizes = xp.sum(labelled, axis=1)
    return labelled, sizes / xp.sum(sizes, axis=1, keepdims=True)
