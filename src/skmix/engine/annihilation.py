"""Annihilation of superfluous kernels during the fit, by the minimum message length rule.

A kernel pays for its own parameters: with T of them it must explain T/2 rows before it earns any weight
(Figueiredo & Jain, 2002, "Unsupervised learning of finite mixture models"). The rule here is theirs with one
class; with several, what a kernel pays is shared by the classes as its rows are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .kernels import Structure
from .types import FloatArray, IntArray, Parameters

# Of the message-length formula: the price of a quantised real number is half the logarithm of rows over this.
_QUANTISATION = 12.0


def price_of_kernel(structure: Structure, n_features: int) -> float:
    """Return T/2, T the number of parameters that a kernel has to itself: mean and covariance."""
    own = structure.n_parameters(2, n_features) - structure.n_parameters(1, n_features)
    return 0.5 * (n_features + own)


def annihilate(mass: FloatArray, price: float) -> FloatArray:
    """Take the price of a kernel from its mass; a kernel that cannot pay loses all of it.

    At most one kernel of a start goes in a pass, the lightest, so that its rows can save its neighbours; and
    none goes that would leave a class with nothing, or fewer kernels than classes.

    Parameters
    ----------
    mass : ndarray of shape (R, K, L)
        Responsibility mass of each kernel in each class.
    price : float
        T/2.

    Returns
    -------
    ndarray of shape (R, K, L)
        What is left of the mass: the weights before they are normalised.
    """
    total = mass.sum(axis=-1)
    pays = total > price
    left = mass * np.where(pays, 1.0 - price / np.where(pays, total, 1.0), 1.0)[..., None]
    lightest = np.argmin(np.where(total > 0, total, np.inf), axis=1)
    starts = np.arange(len(mass))
    without = left.copy()
    without[starts, lightest] = 0.0
    goes = ~pays[starts, lightest] & np.all(without.sum(axis=1) > 0, axis=-1)
    goes &= np.count_nonzero(total, axis=1) > mass.shape[-1]
    return np.where(goes[:, None, None], without, left)


def message_length(parameters: Parameters, class_sizes: FloatArray, price: float) -> FloatArray:
    """Return the length (R,) of the message that describes the parameters, in units of log-likelihood.

    Parameters
    ----------
    parameters : Parameters
        Of R starts; kernels without weight are not described.
    class_sizes : ndarray of shape (R or 1, L)
        Rows of each class.
    price : float
        T/2.
    """
    rows = (parameters.weights * class_sizes[:, None]).sum(axis=-1)
    alive = rows > 0
    own = price * np.log(np.where(alive, rows, _QUANTISATION) / _QUANTISATION).sum(axis=1)
    # A class of fewer rows than that cannot describe a weight at all.
    weights = 0.5 * np.log(np.maximum(class_sizes, _QUANTISATION) / _QUANTISATION).sum(axis=1)
    n_classes = class_sizes.shape[-1]
    length: FloatArray = own + alive.sum(axis=1) * (weights + price + 0.5 * n_classes)
    return length


def living_kernels(parameters: Parameters, structure: Structure) -> Parameters:
    """Return one model without the kernels that have no weight in any class."""
    alive = np.flatnonzero(parameters.weights.any(axis=1))
    if len(alive) == len(parameters.weights):
        return parameters
    return take_kernels(parameters.batch(), alive[None], structure).take(0)


def take_kernels(parameters: Parameters, kernels: IntArray, structure: Structure) -> Parameters:
    """Return R starts with the chosen kernels (R, k) of each."""
    return replace(
        parameters,
        weights=np.take_along_axis(parameters.weights, kernels[..., None], axis=1),
        means=np.take_along_axis(parameters.means, kernels[..., None], axis=1),
        covariances=structure.take_kernels(parameters.covariances, kernels),
    )
