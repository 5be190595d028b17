"""Annihilation of superfluous kernels during the fit.

A kernel pays for its own parameters: with T of them it must explain T/2 rows before it earns any weight
(Figueiredo & Jain, 2002, "Unsupervised learning of finite mixture models"). The rule here is theirs with one
class; with several, what a kernel pays is shared by the classes as its rows are.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..compute.arrays import constant, namespace
from ..covariances import Structure
from ..model import FloatArray, IntArray, Parameters


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
    xp = namespace(mass)
    total = xp.sum(mass, axis=-1)
    pays = total > price
    left = mass * xp.where(pays, 1.0 - price / xp.where(pays, total, 1.0), 1.0)[..., None]
    lightest = xp.argmin(xp.where(total > 0, total, np.inf), axis=1)
    is_lightest = constant(np.arange, mass.shape[1], example=mass) == lightest[:, None]
    without = xp.where(is_lightest[..., None], 0.0, left)
    goes = ~xp.any(pays & is_lightest, axis=1) & xp.all(xp.sum(without, axis=1) > 0, axis=-1)
    goes &= xp.count_nonzero(total, axis=1) > mass.shape[-1]
    return xp.where(goes[:, None, None], without, left)


def description_length(weights: FloatArray, price: float, n_rows: float) -> FloatArray:
    """Return what it takes (R,) to describe the kernels: half the logarithm of the rows for each parameter.

    Less the log-likelihood it is half the Bayesian information criterion, up to a constant. The message
    length of the reference lets a kernel of a few rows have its parameters for next to nothing, which is too
    kind to kernels that have shrunk onto them.

    Parameters
    ----------
    weights : ndarray of shape (R, K, L)
        Weights; kernels that have none are not described.
    price : float
        T/2.
    n_rows : float
        N.
    """
    alive = np.count_nonzero(weights.any(axis=-1), axis=1)
    length: FloatArray = alive * (price + 0.5 * weights.shape[-1]) * math.log(n_rows)
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
