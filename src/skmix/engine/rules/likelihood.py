"""Maximum likelihood with priors, variance floor and freezing: the M-step of EM.

Equation labels are those of ``docs/notation.md``: (M1) weights, (M2) means, (M3) covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..conditions import rare
from ..exponentials import EMPTY_MASS
from ..kernels import StudentT
from ..numbers import LARGEST_CANCELLATION, TINY, Array, clip, constant, namespace, to_numpy, where
from ..records import BoolArray, Factor, FloatArray, Parameters, Regulariser, Statistics
from ..structures import Structure
from .weights import begin, log_ratio, point_weights, with_posterior

# The next parameters, their factor, and the kernels (R, K) whose covariances lost digits.
Improved = tuple[Parameters, Factor, BoolArray]


@dataclass(frozen=True)
class Likelihood:
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

    def placed(self, place: Callable[[Array], Array]) -> Likelihood:
        """Return the rule with its arrays where passes run."""
        return replace(self, regulariser=self.regulariser.map(place))

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return parameters to start a pass from, raised to the floor unless frozen, and their factor."""
        structure, parameters = self.structure, begin(parameters) if self.bounded else parameters
        if self.freeze == "kernels":
            return parameters, structure.factor(parameters.covariances, parameters.means.shape[-1])
        # A start below the floor would look degenerate, and its squares might overflow.
        covariances, factor = structure.raised(parameters.covariances, self.regulariser.floor)
        return replace(parameters, covariances=covariances), factor

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> Improved:
        """Do the M-step: return new parameters, their factor, and kernels (R, K) that lost digits.

        Moments are about `origins` (R, K, M); `factor` is that of `previous`; an empty kernel stays as it is.
        A start that is not usable in the new factor has degenerated. Kernels that are narrow and far from
        their origin lose digits of the covariance; they need another E-step about their new means.
        """
        tail, frozen = previous.tail, self.freeze == "kernels"
        if frozen:
            means, covariances, next_factor = previous.means, previous.covariances, factor
            inaccurate = namespace(means).zeros_like(statistics.mass[..., 0] > 0.0)  # nothing loses digits
        else:
            means, covariances, next_factor, inaccurate = self._improve_kernels(
                statistics, origins, previous, factor
            )
        class_mass, prior = assign_unlabelled(statistics.mass, previous)
        class_mass = where(class_mass > EMPTY_MASS, class_mass, 0.0)
        if self.learn_degrees and not frozen and isinstance(tail, StudentT):
            mass = statistics.mass.sum(-1)
            alive = mass > EMPTY_MASS
            tail = tail.improve(where(alive, mass, TINY), alive, statistics.of_tail)
        following = Parameters(previous.weights, means, covariances, prior, tail=tail)
        if self.bounded:
            learn = self.regulariser.hierarchical != "given"
            following = with_posterior(following, class_mass, previous, learn=learn)
        else:
            following = replace(following, weights=self._shares(class_mass, previous))
        return with_frozen(self.freeze, following, previous), next_factor, inaccurate

    def _improve_kernels(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> tuple[FloatArray, FloatArray, Factor, BoolArray]:
        """Return new means and covariances, their factor, and kernels (R, K) that lost digits."""
        structure, xp, tail = self.structure, namespace(statistics.mass), previous.tail
        mass, first, second = statistics.mass.sum(-1), statistics.first, statistics.second
        alive = mass > EMPTY_MASS
        weight = tail.mass_in_moments(mass, statistics.of_tail)
        some_empty = rare(xp.reshape(~alive, (-1,))) is not None
        if some_empty:
            # Empty kernels get a covariance that can be factored; the previous one is restored below.
            identity = constant(_identity, structure, first.shape[-1], example=mass)
            mass, first = where(alive, mass, TINY), where(alive[..., None], first, 0.0)
            weight = where(alive, weight, TINY)
            # Of kernels with one covariance only the sum of the moments is defined, so none may be left out.
            kept = xp.any(alive, axis=1, keepdims=True) if structure.shared else alive
            second = where(kept[..., None], second, TINY * identity)
        offset = first / weight[..., None]
        means = origins + offset  # (M2)
        ahead = offset
        if tail.weighted:
            # The moments are weighted, but the scatter is divided by the number of rows.
            second = structure.moved(second, first, weight[..., None], -offset)
            ahead = xp.zeros_like(offset)
        covariances, next_factor = structure.update((mass, ahead, second), self.regulariser)  # (M3)
        inaccurate = lost_digits(offset, next_factor, structure, self.precision)
        if some_empty:
            means = where(alive[..., None], means, previous.means)
            new, old = map(structure.by_kernel, (covariances, previous.covariances))
            covariances = xp.reshape(_where_chosen(alive, new, old), covariances.shape)
            next_factor = Factor(
                _where_chosen(alive, next_factor.whitener, factor.whitener),
                _where_chosen(alive, next_factor.log_determinant, factor.log_determinant),
                next_factor.usable,
            )
            inaccurate = alive & inaccurate
        return means, covariances, next_factor, inaccurate

    def _shares(self, class_mass: FloatArray, previous: Parameters) -> FloatArray:
        """Return the weights (R, K, L) for the mass (R, K, L) of each class."""
        regulariser, xp = self.regulariser, namespace(class_mass)
        if regulariser.weight_prior != 1.0:
            class_mass = class_mass + (regulariser.weight_prior - 1.0)
        sizes = xp.sum(class_mass, axis=1, keepdims=True)
        # In a stream, a class without rows so far keeps its weights.
        shares = class_mass / clip(sizes, TINY, np.inf)
        return where(sizes > 0, shares, previous.weights)  # (M1)

    def objective(self, log_likelihood: FloatArray, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return the log-likelihood plus that of the priors, up to a constant (R,), on the host.

        With hierarchical weights it is the lower bound of the log-evidence in which they are integrated out.
        """
        total = log_likelihood.sum(axis=1) + to_numpy(self.log_prior(parameters, factor))
        return total + log_ratio(parameters) if self.bounded else total

    def log_prior(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return the logarithm (R,) of the priors on covariances and weights, up to a constant."""
        xp, regulariser = namespace(parameters.means), self.regulariser
        total: FloatArray = xp.zeros_like(parameters.means[:, 0, 0])
        if regulariser.prior_rows:
            total = self.structure.log_prior(factor, regulariser)
        if not self.bounded and regulariser.weight_prior != 1.0:
            # A start may have weights of zero.
            logs = xp.sum(xp.log(clip(parameters.weights, TINY, 1.0)), axis=(1, 2))
            total = total + (regulariser.weight_prior - 1.0) * logs
        return total

    def finish(self, parameters: Parameters) -> Parameters:
        """Return the parameters as point estimates: weights that have a posterior become its means."""
        if not self.bounded:
            return parameters
        assert parameters.concentration is not None
        return point_weights(parameters, parameters.concentration[..., None])


def _identity(structure: Structure, n_features: int) -> FloatArray:
    """Return the second-order terms (S,) of the identity matrix."""
    first, second = structure.pairs(n_features)
    return (first == second).astype(np.float64)


def _where_chosen(chosen: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
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
