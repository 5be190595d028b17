"""Simulated classes whose densities are known: some that share their kernels, and some that do not.

Three kinds, of any number of classes:

- **pool**: 20 kernels for all classes, which differ in their weights alone;
- **parts**: the features fall into six parts, and each part has a pool of 5 kernels of its own;
- **apart**: each class has 3 kernels that no other class has.

Where L classes share one pool of K kernels, no classifier can be right with a probability above K / L: a row
shows at best which kernel it came from, and the best prediction for a kernel is one class. So 100 classes
that share 20 kernels have an error of at least 80 %, while six parts of 5 kernels can distinguish thousands
of classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.base import BaseEstimator, ClassifierMixin

from skmix.datasets import make_shared_kernel_data
from skmix.experiments.field.data import DataSet, FloatArray
from skmix.experiments.harness import generator

KINDS = ("pool", "parts", "apart")
"""Which kernels simulated classes share: all, those of each part, or none."""

# Kernels of a pool, and the concentration of the class weights: a class uses about three of them.
_N_POOL, _POOL_CONCENTRATION = 20, 0.1
_N_APART = 3
_N_PARTS, _N_OF_A_PART, _PART_CONCENTRATION = 6, 5, 0.2
# Features, and how far apart kernels lie, in standard deviations of one.
_N_FEATURES, _SPREAD = 10, 1.5
_PART_FEATURES, _PART_SPREAD = 2, 2.0


@dataclass(frozen=True, eq=False)
class Pool:
    """Kernels and the classes' weights over them."""

    means: FloatArray  # (K, M)
    covariances: FloatArray  # (K, M, M)
    weights: FloatArray  # (K, L)

    def log_densities(self, rows: FloatArray) -> FloatArray:
        """Return log p(x | class j), shape (n, L), of rows (n, M)."""
        kernels = zip(self.means, self.covariances, strict=True)
        logs = np.column_stack([multivariate_normal.logpdf(rows, *kernel) for kernel in kernels])
        peaks = logs.max(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return np.log(np.exp(logs - peaks) @ self.weights) + peaks


@dataclass(frozen=True, eq=False)
class Simulation:
    """Rows of simulated classes, and the densities they came from."""

    data: DataSet
    pools: tuple[Pool, ...]  # kernels of each part of the features; one pool unless the kind is "parts"


class TrueDensities(ClassifierMixin, BaseEstimator):
    """Bayes' rule on the densities that rows were drawn from, for equal class priors.

    `pools` are the densities of the parts of the features, which are multiplied.
    """

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Store the classes of y (N,); rows X (N, M) are not used."""
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        edges = np.cumsum([pool.means.shape[1] for pool in self.pools])[:-1]
        parts = np.split(X, edges, axis=1)
        logs = [pool.log_densities(part) for pool, part in zip(self.pools, parts, strict=True)]
        return softmax(reduce(np.add, logs), axis=1)


def part_features(kind: str) -> list[list[int]]:
    """Return the features of each part of a kind of simulated classes."""
    if kind != "parts":
        return [list(range(_N_FEATURES))]
    return [list(range(first, first + _PART_FEATURES)) for first in _part_starts()]


def kind_and_classes(name: str) -> tuple[str, int] | None:
    """Return kind and number of classes of a name such as "pool-100"; None if the name has another form."""
    found = re.fullmatch(rf"({'|'.join(KINDS)})-(\d+)", name)
    return None if found is None else (found[1], int(found[2]))


def in_words(name: str) -> str:
    """Return what a name such as "pool-100" stands for; other names are returned as they are."""
    found = kind_and_classes(name)
    if found is None:
        return name
    kind, n_classes = found
    kernels = {
        "pool": f"from a pool of {_N_POOL} kernels",
        "parts": f"in {_N_PARTS} parts of {_N_OF_A_PART} kernels",
        "apart": f"with {_N_APART} kernels each",
    }
    return f"{n_classes} classes {kernels[kind]}"


def simulate(name: str, n_each: int, seed: int, repeat: int = 0) -> Simulation:
    """Return simulated classes by name, such as "pool-100": their kind, see `KINDS`, and number.

    There are `n_each` rows of each class. Each seed and repeat has its own kernels, weights and rows.
    """
    found = kind_and_classes(name)
    if found is None or found[1] < 2:
        raise ValueError(
            f"simulated classes are named by their kind, {', '.join(KINDS)}, and how many there are, from 2 "
            f"on, such as pool-100; got {name!r}."
        )
    kind, n_classes = found
    random = generator(seed, "simulated classes", name, repeat)
    if kind == "pool":
        weights = random.dirichlet(np.full(_N_POOL, _POOL_CONCENTRATION), n_classes).T
        pools = [_kernels(random, _N_FEATURES, _SPREAD, weights)]
    elif kind == "apart":
        own = random.dirichlet(np.ones(_N_APART), n_classes)
        weights = np.zeros((n_classes, _N_APART, n_classes))
        weights[np.arange(n_classes), :, np.arange(n_classes)] = own
        pools = [_kernels(random, _N_FEATURES, _SPREAD, weights.reshape(-1, n_classes))]
    else:
        concentration = np.full(_N_OF_A_PART, _PART_CONCENTRATION)
        pools = [
            _kernels(random, _PART_FEATURES, _PART_SPREAD, random.dirichlet(concentration, n_classes).T)
            for _ in _part_starts()
        ]
    drawn = [
        make_shared_kernel_data(pool.means, pool.covariances, pool.weights, n_each, random_state=random)
        for pool in pools
    ]
    # Rows are ordered by class in every part, so that a row's parts belong to the same class.
    data = DataSet(name, np.column_stack([X for X, _ in drawn]), drawn[0][1])
    return Simulation(data, tuple(pools))


def _part_starts() -> range:
    return range(0, _N_PARTS * _PART_FEATURES, _PART_FEATURES)


def _kernels(random: np.random.RandomState, n_features: int, spread: float, weights: FloatArray) -> Pool:
    """Return random kernels, one for each line of the weights (K, L), whose covariances differ."""
    n_kernels = len(weights)
    means = spread * random.standard_normal((n_kernels, n_features))
    roots = random.standard_normal((n_kernels, n_features, 2 * n_features))
    return Pool(means, roots @ roots.transpose(0, 2, 1) / (2 * n_features), weights)
