"""Where the randomness of a study comes from: a hash of what is drawn for, never a sequence of draws.

A run's generator depends on the study's seed, the variant, K, the method and the run's number alone. Runs may
therefore be made in any order, in any company and in any process, and each can be repeated alone.
"""

from __future__ import annotations

import hashlib

import numpy as np

from skmix.experiments.paper.variants import Method


def generator(seed: int, *names: str | int) -> np.random.RandomState:
    """Return the generator that a seed and some names lead to.

    Parameters
    ----------
    seed : int
        Seed of the study.
    *names : str or int
        What the numbers are drawn for. No name may contain a line break, which separates them.

    Returns
    -------
    RandomState
        A fresh generator, the same for the same arguments on every machine.
    """
    text = "\n".join(["skmix study", str(seed), *map(str, names)])
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(entropy)))


def run_generator(seed: int, variant: str, n_kernels: int, method: Method, run: int) -> np.random.RandomState:
    """Return the generator of one run's starting point."""
    return generator(seed, "run", variant, n_kernels, method, run)


def data_generator(seed: int, what: str) -> np.random.RandomState:
    """Return the generator of a part of the data, such as "train images"."""
    return generator(seed, "data", what)
