"""Models near a given one, as vectors of numbers, and the gradient of an objective in these numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..covariances import Structure
from ..covariances.reparametrisation import chart_of
from ..model import Factor, FloatArray, Parameters, Regulariser

# Exponents of weights and covariances, and steps of means in the units of their kernel, beyond any sense.
_FARTHEST_POWER, _FARTHEST_STEP = 30.0, 1e6


@dataclass
class Sums:
    """What a gradient needs of the rows. Sums of disjoint rows add.

    Attributes
    ----------
    conditional, joint : float
        Sums of log p(c_n | x_n) and of log p(x_n, c_n), in the frame.
    classes : ndarray of shape (K, L)
        Derivatives with respect to the logarithms of the weights.
    mass : ndarray of shape (K,)
        Sums of the derivatives g_nk with respect to log N(x_n; μ_k, P_k).
    first, second : ndarray of shape (K, M) and (K, S)
        Sums of g_nk times x_n, and times its second-order terms, about the kernels' origins.
    """

    conditional: float
    joint: float
    classes: FloatArray
    mass: FloatArray
    first: FloatArray
    second: FloatArray

    def __iadd__(self, other: Self) -> Self:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self


@dataclass(frozen=True)
class Place:
    """A model near another one, ready for densities.

    Attributes
    ----------
    weights : ndarray of shape (K, L)
        Weights.
    means : ndarray of shape (K, M)
        Means, in the frame.
    stretch : ndarray
        What the chart makes of the covariances' numbers.
    factor : Factor
        Of the covariances, with a leading axis of one start.
    """

    weights: FloatArray
    means: FloatArray
    stretch: FloatArray
    factor: Factor


class Surroundings:
    """All models near a given one, as vectors of numbers: zero is the model itself.

    Weights are the given ones times exponentials of their numbers, normalised; means move in the units of
    their kernel; covariances have the coordinates of their structure's chart. A weight of zero stays zero.

    Parameters
    ----------
    parameters : Parameters
        One model in the frame, without an axis of starts.
    structure : Structure
        Its covariance structure.
    """

    def __init__(self, parameters: Parameters, structure: Structure) -> None:
        self.parameters = parameters
        self.structure = structure
        n_features = parameters.means.shape[1]
        self.chart = chart_of(structure.name)(structure.factor(parameters.covariances[None], n_features))
        self._cuts = np.cumsum([parameters.weights.size, parameters.means.size])
        self.size = int(self._cuts[-1]) + math.prod(self.chart.shape)

    def limits(self) -> FloatArray:
        """Return how far numbers (Q,) may go, so that no trial of an optimiser overflows."""
        sizes = np.diff([0, *self._cuts, self.size])
        return np.repeat([_FARTHEST_POWER, _FARTHEST_STEP, _FARTHEST_POWER], sizes)

    def place(self, numbers: FloatArray) -> Place:
        """Return the model of these numbers (Q,), ready for densities."""
        of_weights, of_means, of_covariances = np.split(numbers, self._cuts)
        powers = of_weights.reshape(self.parameters.weights.shape)
        weights = self.parameters.weights * np.exp(powers - powers.max(axis=0))
        weights /= weights.sum(axis=0)
        stretch = self.chart.stretch(of_covariances.reshape(self.chart.shape))
        means = self.parameters.means + self.chart.moved(of_means.reshape(self.parameters.means.shape))
        return Place(weights, means, stretch, self.chart.factor(stretch))

    def parameters_at(self, place: Place) -> Parameters:
        """Return the parameters of the model at a place, in the frame."""
        return Parameters(place.weights, place.means, self.chart.covariances(place.factor)[0])

    def gradient(self, place: Place, sums: Sums, origins: FloatArray) -> FloatArray:
        """Return the gradient (Q,) of the summed objective at a place.

        Parameters
        ----------
        place : Place
            Where it is taken.
        sums : Sums
            Of the rows.
        origins : ndarray of shape (K, M)
            What their moments are about.
        """
        of_weights = sums.classes - place.weights * sums.classes.sum(axis=0)
        offset = place.means - origins
        first = sums.first - sums.mass[:, None] * offset
        i, j = self.structure.pairs(offset.shape[1])
        # Σ g (x − μ)(x − μ)ᵀ from moments about another origin.
        second = sums.second - first[:, i] * offset[:, j] - sums.first[:, j] * offset[:, i]
        of_means, of_covariances = self.chart.gradients(place.stretch, place.factor, sums.mass, first, second)
        return np.concatenate([of_weights.ravel(), of_means.ravel(), of_covariances.ravel()])

    def log_prior(self, place: Place, regulariser: Regulariser) -> tuple[float, FloatArray]:
        """Return the logarithm of the priors at a place, up to a constant, and its gradient (Q,).

        The prior on covariances acts like rows about each kernel's mean, that on weights like rows that each
        kernel has of each class. A weight of zero, which stays, has no part in it.
        """
        n_kernels, n_features = place.means.shape
        value = 0.0
        classes = np.where(place.weights > 0.0, regulariser.weight_prior - 1.0, 0.0)
        if classes.any():
            value += float(np.sum(classes * np.log(np.where(place.weights > 0.0, place.weights, 1.0))))
        of_weights = classes - place.weights * classes.sum(axis=0)
        mass, second = np.zeros(n_kernels), np.zeros((n_kernels, self.structure.n_second(n_features)))
        if regulariser.prior_rows:
            value += float(self.structure.log_prior(place.factor, regulariser)[0])
            # Kernels with one covariance between them have one prior between them.
            mass += regulariser.prior_rows * place.factor.whitener.shape[1] / n_kernels
            wanted = self.structure.from_full(np.tile(regulariser.prior_covariance, (1, n_kernels, 1, 1)))
            second += mass[:, None] * self.structure.terms_of(wanted, n_kernels, n_features)[0]
        still = np.zeros_like(place.means)
        of_means, of_covariances = self.chart.gradients(place.stretch, place.factor, mass, still, second)
        return value, np.concatenate([of_weights.ravel(), of_means.ravel(), of_covariances.ravel()])
