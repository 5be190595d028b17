"""Populations: sets of kernels of a mixture that no valley of the density divides."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..engine.numbers import Array, like, namespace
from ..engine.records import FloatArray, IntArray
from ..engine.structures import structure_of
from ..model import SharedKernelMixture, densities
from ..model.densities import has_shifts
from ..model.rows import score_rows
from .separation import HEIGHT, cut, find_alternatives, join, separate

_TINY = float(np.finfo(float).tiny)
_TYPED = str.maketrans("⁺⁻", "+-")


class AlternativesWarning(UserWarning):
    """Populations may be one that shifts between samples."""


@dataclass(frozen=True, eq=False)
class Populations:
    """G populations of K kernels, numbered from the largest to the smallest.

    `merge_kernels` makes them. They belong to one fit of a mixture: after another fit, merge again.
    """

    of_kernels: IntArray  # (K,): the population of each kernel, from 0 to G - 1
    tree: FloatArray  # (K - 1, 4): all merges as SciPy's linkage matrix
    names: Mapping[int, str] = field(default_factory=dict)  # by number; not all populations have one

    def __len__(self) -> int:
        return int(self.of_kernels.max()) + 1

    @property
    def display_names(self) -> list[Any]:
        """The name, or else the number, of each population (G,)."""
        return [self.names.get(number, number) for number in range(len(self))]

    @property
    def members(self) -> FloatArray:
        """Membership (K, G) of kernels in populations, as ones and zeros."""
        return (self.of_kernels[:, None] == np.arange(len(self))).astype(np.float64)

    @property
    def cut_height(self) -> float:
        """Height at which the tree is cut: the default, or midway between the merges below and above it."""
        heights = np.concatenate([[0.0], self.tree[:, 2], [1.05]])
        low, high = heights[len(heights) - 1 - len(self) :][:2]
        return float(HEIGHT if low <= HEIGHT < high else (low + high) / 2)

    def numbers_of(self, populations: Iterable[Any]) -> list[int]:
        """Return the numbers of populations, given by number or by name."""
        labels = self.display_names
        # Also numbers as text, and names with the signs that a keyboard has.
        known: dict[Any, int] = {str(g): g for g in range(len(self))}
        known |= {str(label).translate(_TYPED): g for g, label in enumerate(labels)}
        known |= {label: g for g, label in enumerate(labels)} | {g: g for g in range(len(self))}
        found = []
        for population in populations:
            if not isinstance(population, str | Integral) or population not in known:
                raise ValueError(f"There is no population {population!r} among {labels}.")
            found.append(known[population])
        return found

    def renamed(self, names: Mapping[Any, str]) -> Populations:
        """Return the populations with new names, given by number or by current name."""
        if not isinstance(names, Mapping):
            raise TypeError(f"names must map numbers or names to new ones, as {{3: 'CD4 T'}}, got {names!r}.")
        found, numbers = dict(self.names), self.numbers_of(names)
        for number, name in zip(numbers, names.values(), strict=True):
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"A population cannot be called {name!r}.")
            found[number] = name
        if len(set(numbers)) < len(numbers):
            raise ValueError("names has a population twice, by number and by name.")
        # Files have numbers as text.
        shown = [str(found.get(number, number)) for number in range(len(self))]
        if len(set(shown)) < len(shown):
            raise ValueError(f"Two populations would have the same name: {sorted(shown)}.")
        return replace(self, names=found)

    def predict_proba(self, model: Any, X: ArrayLike, *, groups: ArrayLike | None = None) -> FloatArray:
        """Return the probability (n, G) that each row came from each population.

        `model` is the merged mixture; the other parameters are those of `SharedKernelMixture.predict_proba`.
        """
        self.check_model(model)
        return score_rows(model, X, partial(_probabilities, self.members), groups, name="groups")

    def predict(self, model: Any, X: ArrayLike, *, groups: ArrayLike | None = None) -> IntArray:
        """Return the number (n,) of the population that each row most probably came from."""
        self.check_model(model)
        return score_rows(model, X, partial(_most_likely, self.members), groups, name="groups")

    def check_model(self, model: Any) -> None:
        """Raise ValueError if a mixture has another number of kernels."""
        check_is_fitted(model)
        if len(model.means_) != len(self.of_kernels):
            raise ValueError(
                f"These are populations of {len(self.of_kernels)} kernels, but the mixture has "
                f"{len(model.means_)}: merge its kernels again."
            )

    def check(self, n_kernels: int) -> None:
        """Raise ValueError if populations from a file are not a cut of a tree of `n_kernels` kernels."""
        own, tree, numbers = self.of_kernels, self.tree, np.unique(self.of_kernels)
        linked = (
            tree.shape == (n_kernels - 1, 4)
            and tree.dtype == np.float64
            and bool(np.isfinite(tree).all() and (tree >= 0.0).all() and (tree[:, 3] <= n_kernels).all())
            # Kernels and all merges but the last are joined once, and merges after they are made.
            and np.array_equal(np.sort(tree[:, :2], axis=None), np.arange(2 * n_kernels - 2))
            and bool((tree[:, :2].max(axis=1, initial=0.0) < n_kernels + np.arange(n_kernels - 1)).all())
        )
        for right, problem in (
            (own.shape == (n_kernels,) and own.dtype.kind == "i", f"are not {n_kernels} whole numbers"),
            (np.array_equal(numbers, np.arange(len(numbers))), f"are not numbered 0 to {len(numbers) - 1}"),
            (linked, "have no valid tree of merges"),
        ):
            if not right:
                raise ValueError(f"its populations {problem}")
        if len(np.unique(np.stack([cut(tree, len(numbers)), own]), axis=1).T) != len(numbers):
            raise ValueError("its populations are not those of the tree of merges")
        replace(self, names={}).renamed(self.names)


def _probabilities(members: FloatArray, model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return the responsibilities (n, G) of populations, given the membership (K, G) of kernels."""
    shares = densities.responsibilities(model, rows, codes)
    return shares @ like(members, shares)


def _most_likely(members: FloatArray, model: Any, rows: Array, codes: IntArray | None = None) -> IntArray:
    """Return the population (n,) with the largest responsibility."""
    shares = _probabilities(members, model, rows, codes)
    return namespace(shares).argmax(shares, axis=1)


def average_weights(model: Any) -> FloatArray:
    """Return the weights (K,) of the kernels in all samples together."""
    found: FloatArray = model.weights_ @ model.class_prior_
    return found


# ---------------------------------------------------------------- merges


def merge_kernels(model: SharedKernelMixture, *, n_populations: int | None = None) -> Populations:
    """Merge the kernels of a fitted mixture into populations, which may have any shape.

    A population is a hill of the density. Each step merges the two that the shallowest valley divides: where
    the saddle between them is highest in relation to the lower of their peaks [1]_. By default, populations
    stay apart if the density at the saddle is less than half that at the lower peak. Populations with less
    than 0.05 % of every sample join the nearest. Kernels of Student's t count as Gaussians here. The mixture
    and its density do not change.

    Parameters
    ----------
    model : SharedKernelMixture
        A fitted mixture.
    n_populations : int, default=None
        Number of populations at which to cut the tree of merges. None lets the valleys decide.

    Returns
    -------
    Populations
        The population of each kernel and the tree of merges.

    References
    ----------
    .. [1] Ray, S. and Lindsay, B. G. (2005). The topography of multivariate normal mixtures. The Annals of
       Statistics 33, 2042-2065.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture
    >>> from skmix.samples import merge_kernels
    >>> random = np.random.default_rng(0)
    >>> X = np.append(random.exponential(size=400), random.normal(12.0, size=200))[:, None]
    >>> model = SharedKernelMixture(4, init="k-means", random_state=0).fit(X)
    >>> populations = merge_kernels(model)
    >>> populations.predict(model, [[0.1], [3.0], [11.0]])
    array([0, 0, 1])
    """
    own = checked_mixture(model)
    n_kernels = len(own.means_)
    if n_populations is not None:
        whole = isinstance(n_populations, Integral) and not isinstance(n_populations, bool)
        if not whole or not 1 <= n_populations <= n_kernels:
            raise ValueError(f"n_populations must be a number from 1 to {n_kernels}, got {n_populations!r}.")
    weights = average_weights(own)
    tree, found = separate(weights, *_kernels_of_all_samples(own), own.weights_)
    populations = cut(tree, found if n_populations is None else int(n_populations))
    return Populations(_by_size(own, populations), tree)


def join_populations(model: Any, populations: Populations, groups: Sequence[Sequence[int]]) -> Populations:
    """Return the populations, without names, after joining groups of them, given by number.

    The model has NumPy arrays.
    """
    targets = np.arange(len(populations))
    for group in groups:
        targets[list(group)] = group[0]
    tree = join(populations.tree, populations.of_kernels, groups, populations.cut_height)
    return Populations(_by_size(model, targets[populations.of_kernels]), tree)


def _by_size(model: Any, populations: IntArray) -> IntArray:
    """Return populations (K,) of kernels, numbered from the largest weight to the smallest."""
    populations, weights = np.unique(populations, return_inverse=True)[1], average_weights(model)
    members = (populations[:, None] == np.arange(populations.max() + 1)) * weights[:, None]
    total = members.sum(axis=0)
    means = (members.T @ model.means_) / np.maximum(total, _TINY)[:, None]
    # Means break ties.
    return np.asarray(np.argsort(np.lexsort((*means.T[::-1], -total)))[populations])


def alternatives(
    model: Any, populations: Populations, proportions: FloatArray, upper: FloatArray
) -> list[tuple[list[int], float]]:
    """Return sets of populations that may be one which shifts between samples; see `find_alternatives`.

    The model has NumPy arrays; `proportions` (L, G) and their upper limits are those of its samples.
    """
    kernels = average_weights(model), *_kernels_of_all_samples(model)
    return find_alternatives(*kernels, populations.of_kernels, proportions, upper)


def alternatives_in_words(found: list[tuple[list[int], float]], names: Sequence[Any], where: str) -> str:
    """Return what to say of the sets that `alternatives` found; names are those of all populations."""
    from ..report.rendering import in_words  # slow to import

    said = ["Some populations may be one that shifts between samples, or several that replace each other."]
    for numbers, share in found:
        which = in_words(str(names[g]) for g in numbers)
        which = f"Populations {which}" if any(isinstance(names[g], int) for g in numbers) else which
        percent = max(1, math.ceil(100.0 * share))
        rest = f"one of the two has at most {percent} % of its largest proportion"
        if len(numbers) > 2:
            rest = f"all but one have at most {percent} % of their largest proportions"
        said.append(f"{which}: in every sample{where}, {rest}.")
    sets = [[names[g] for g in numbers] for numbers, _ in found]
    call = ", ".join(map(repr, sets if len(sets) > 1 else sets[0]))
    options = [json.dumps(",".join(map(str, joined)), ensure_ascii=False) for joined in sets]
    option = " ".join(f"--join {names}" for names in options)
    return f"{' '.join(said)} To make them one: study.join({call}), or {option} of skmix compose."


def _kernels_of_all_samples(model: Any) -> tuple[FloatArray, FloatArray]:
    """Return the means (K, M) and covariances (K, M, M) of the kernels in all samples together."""
    means, structure = model.means_, structure_of(model.covariance_type_)
    covariances = structure.to_full(model.covariances_[None], *means.shape)[0]
    covariances = np.broadcast_to(covariances, (len(means), *covariances.shape[1:]))
    if not has_shifts(model):
        return means, covariances
    shares = np.maximum(model.weights_ * model.class_prior_, _TINY)
    shares = shares / shares.sum(axis=1, keepdims=True)
    average = np.einsum("kl,lkm->km", shares, model.group_shifts_)
    apart = model.group_shifts_ - average
    return means + average, covariances + np.einsum("kl,lkm,lkn->kmn", shares, apart, apart)


def checked_mixture(model: Any) -> Any:
    """Return a fitted mixture; raise TypeError for anything else."""
    if not isinstance(model, SharedKernelMixture):
        raise TypeError(f"model must be a SharedKernelMixture, got a {type(model).__name__}.")
    check_is_fitted(model)
    return model
