"""Populations: sets of kernels of a mixture, with the tree of their merges, names and a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._errors import Argument, ArgumentError
from .._extras import need
from ..engine.records import FloatArray, IntArray
from ..model import Groups, Kernels, SharedKernelMixture, responsibilities, score_rows
from .merging import HEIGHT, Mixture, by_size, cut, find_populations, join, sets_below
from .shifting import find_shifts

if TYPE_CHECKING:
    from pandas import DataFrame

_TINY = float(np.finfo(float).tiny)
_TYPED = str.maketrans("⁺⁻", "+-")


class AlternativesWarning(UserWarning):
    """Populations may be one that shifts between samples."""


@dataclass(frozen=True, eq=False, repr=False)
class Populations:
    """G populations of K kernels, numbered from the largest to the smallest; printed as a table.

    `merge_kernels` makes them. They belong to one fit of a mixture: after another fit, merge again.
    """

    of_kernels: IntArray  # (K,): the population of each kernel, from 0 to G - 1
    tree: FloatArray  # (K - 1, 4): all merges as SciPy's linkage matrix
    names: Mapping[int, str] = field(default_factory=dict)  # by number; not all populations have one
    weights: FloatArray | None = None  # (K,): of the kernels in all samples together, for the table

    def __len__(self) -> int:
        return int(self.of_kernels.max()) + 1

    def __repr__(self) -> str:
        return str(self.table.to_string(index=False))

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))

    @property
    def table(self) -> DataFrame:
        """A line for each population: its number, name, share of all cells and kernels."""
        columns: dict[str, Any] = {"population": range(len(self))}
        if self.names:
            columns["name"] = [self.names.get(number, "") for number in range(len(self))]
        if self.weights is not None:
            columns["share"] = (self.weights @ self.members).round(4)
        kernels = [np.flatnonzero(self.of_kernels == number) for number in range(len(self))]
        columns["kernels"] = [" ".join(f"k{kernel}" for kernel in of_one) for of_one in kernels]
        return need("pandas", "Tables of populations need").DataFrame(columns)

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
        numbers = []
        for population in populations:
            is_number = isinstance(population, Integral) and not isinstance(population, bool)
            if not (is_number or isinstance(population, str)) or population not in known:
                raise ValueError(f"There is no population {population!r} among {labels}.")
            numbers.append(known[population])
        return numbers

    def renamed(self, names: Mapping[Any, str]) -> Populations:
        """Return the populations with new names, given by number or by current name."""
        if not isinstance(names, Mapping):
            raise TypeError(f"names must map numbers or names to new ones, as {{3: 'CD4 T'}}, got {names!r}.")
        after, numbers = dict(self.names), self.numbers_of(names)
        for number, name in zip(numbers, names.values(), strict=True):
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"A population cannot be called {name!r}.")
            after[number] = name
        if len(set(numbers)) < len(numbers):
            raise ValueError("names has a population twice, by number and by name.")
        # Files have numbers as text.
        shown = [str(after.get(number, number)) for number in range(len(self))]
        if len(set(shown)) < len(shown):
            raise ValueError(f"Two populations would have the same name: {sorted(shown)}.")
        return replace(self, names=after)

    def groups_to_join(self, populations: Sequence[Any]) -> list[list[int]]:
        """Return the numbers of populations to join, given as one group of them or as several groups."""
        are_sets = all(isinstance(population, (list, tuple)) for population in populations)
        groups = [self.numbers_of(group) for group in (populations if are_sets else (populations,))]
        numbers = [number for group in groups for number in group]
        if not groups or min(map(len, groups)) < 2 or len(set(numbers)) < len(numbers):
            raise ValueError(
                "join needs two populations or more, none of them twice, such as join(0, 1) or "
                f"join([0, 1], [2, 3]); got {', '.join(map(repr, populations)) or 'none'}."
            )
        return groups

    def shifts(self, model: Any) -> list[list[int]]:
        """Return the numbers of populations, in sets each of which is one that shifts between samples."""
        return find_shifts(mixture_of(model), self.of_kernels, self.tree, Groups.of(model).sizes)

    def joined(self, model: Any, groups: Sequence[Sequence[int]]) -> Populations:
        """Return the populations of a mixture, without names, after joining groups of their numbers."""
        targets = np.arange(len(self))
        for group in groups:
            targets[list(group)] = group[0]
        tree = join(self.tree, self.of_kernels, groups, self.cut_height)
        of_kernels = by_size(targets[self.of_kernels], mixture_of(model))
        return Populations(of_kernels, tree, weights=self.weights)

    def recut(self, model: Any, n_populations: int) -> Populations:
        """Return as many populations of a mixture, without names, by another cut of the same tree."""
        mixture = mixture_of(model)
        check_number(n_populations, len(mixture.weights))
        of_kernels = by_size(cut(self.tree, int(n_populations)), mixture)
        return Populations(of_kernels, self.tree, weights=mixture.weights)

    def divided_at(self, n_populations: int) -> tuple[IntArray, IntArray] | None:
        """Return the kernels of the two sets that the cut at this number, from 2 up to K, divides."""
        n_kernels = len(self.of_kernels)
        if not 2 <= n_populations <= n_kernels:
            return None
        below = sets_below(self.tree)
        one, other = self.tree[n_kernels - n_populations, :2].astype(int)
        return below[one], below[other]

    def predict_proba(self, model: Any, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return the probability (n, G) that each row came from each population.

        `model` is the merged mixture; the other parameters are those of `SharedKernelMixture.predict_proba`.
        """
        self.check_model(model)
        return score_rows(model, X, partial(_probabilities, self.members), y)

    def predict(self, model: Any, X: ArrayLike, y: ArrayLike | None = None) -> IntArray:
        """Return the number (n,) of the population that each row most probably came from."""
        self.check_model(model)
        return score_rows(model, X, partial(_most_likely, self.members), y)

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
        from scipy.cluster.hierarchy import is_valid_linkage  # slow to import

        of_kernels, tree, n_populations = self.of_kernels, self.tree, len(np.unique(self.of_kernels))
        if of_kernels.shape != (n_kernels,) or of_kernels.dtype.kind != "i":
            raise ValueError(f"its populations are not {n_kernels} whole numbers")
        if set(of_kernels.tolist()) != set(range(n_populations)):
            raise ValueError(f"its populations are not numbered 0 to {n_populations - 1}")
        is_tree = tree.shape == (n_kernels - 1, 4) and bool(np.isfinite(tree).all())
        if not is_tree or (n_kernels > 1 and not is_valid_linkage(tree)):
            raise ValueError("its populations have no valid tree of merges")
        pairs = zip(cut(tree, n_populations).tolist(), of_kernels.tolist(), strict=True)
        if len({*pairs}) != n_populations:
            raise ValueError("its populations are not those of the tree of merges")
        replace(self, names={}).renamed(self.names)


def _probabilities(members: FloatArray, model: Any, rows: Any, codes: IntArray | None = None) -> Any:
    """Return the responsibilities (n, G) of populations, given the membership (K, G) of kernels."""
    return np.asarray(responsibilities(model, rows, codes)) @ members


def _most_likely(members: FloatArray, model: Any, rows: Any, codes: IntArray | None = None) -> Any:
    """Return the population (n,) with the largest responsibility."""
    return _probabilities(members, model, rows, codes).argmax(axis=1)


# ---------------------------------------------------------------- kernels of a mixture


def check_number(n_populations: Any, n_kernels: int) -> None:
    """Raise ValueError if kernels cannot be merged into this number of populations."""
    is_whole = isinstance(n_populations, Integral) and not isinstance(n_populations, bool)
    if not is_whole or not 1 <= n_populations <= n_kernels:
        limit = f" must be a whole number from 1 to {n_kernels}, the number of kernels."
        raise ArgumentError(Argument("n_populations", n_populations), limit)


def checked_mixture(model: Any) -> Any:
    """Return a fitted mixture; raise TypeError for anything else."""
    if not isinstance(model, SharedKernelMixture):
        raise TypeError(f"model must be a SharedKernelMixture, got a {type(model).__name__}.")
    check_is_fitted(model)
    return model


def average_weights(model: Any) -> FloatArray:
    """Return the weights (K,) of the kernels in all samples together."""
    return np.asarray(model.weights_ @ model.class_prior_)


def mixture_of(model: Any) -> Mixture:
    """Return the kernels of a fitted mixture in all samples together, widened by what shifts move them."""
    kernels, shifts = Kernels.of(model), Groups.of(model).shifts
    means, covariances = kernels.means, kernels.covariances
    if shifts is not None:
        shares = np.maximum(model.weights_ * model.class_prior_, _TINY)
        shares = shares / shares.sum(axis=1, keepdims=True)
        average = np.einsum("kl,lkm->km", shares, shifts)
        apart = shifts - average
        means = means + average
        covariances = covariances + np.einsum("kl,lkm,lkn->kmn", shares, apart, apart)
    n_cells = float(Groups.of(model).sizes.sum())
    return Mixture(average_weights(model), model.weights_, means, covariances, n_cells)


def merge_kernels(model: SharedKernelMixture, *, n_populations: int | None = None) -> Populations:
    """Merge the kernels of a fitted mixture into populations, which may have any shape.

    Kernels are as far apart as their means are in the marker in which they differ most. Average linkage makes
    a tree of them, which is cut where two sets are far enough apart beside the whole, and beside their own
    widths; a set that one Gaussian describes as well is not divided. Populations with less than 0.05 % of
    every sample join the nearest. Kernels of Student's t count as Gaussians here. The mixture and its density
    do not change.

    Markers count by their units: bring them to one scale. Only a marker whose spread is more than 20 times,
    or less than a 20th, of the median spread counts as if it had that.

    Parameters
    ----------
    model : SharedKernelMixture
        A fitted mixture.
    n_populations : int, default=None
        Number of populations at which to cut the tree of merges. None takes those that differ clearly.

    Returns
    -------
    Populations
        The population of each kernel and the tree of merges.

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
    model, n_kernels = checked_mixture(model), len(model.means_)
    if n_populations is not None:
        check_number(n_populations, n_kernels)
        n_populations = int(n_populations)
    mixture = mixture_of(model)
    of_kernels, tree = find_populations(mixture, n_populations)
    return Populations(of_kernels, tree, weights=mixture.weights)


def alternatives_in_words(sets: Sequence[tuple[list[int], float]], names: Sequence[Any]) -> str:
    """Return what to say of the sets that `find_alternatives` found; names are those of all populations."""
    from ..report.rendering import in_words  # slow to import

    said = ["Some populations may be one that shifts between samples, or several that replace each other."]
    for numbers, share in sets:
        which = in_words(str(names[g]) for g in numbers)
        which = f"Populations {which}" if any(isinstance(names[g], int) for g in numbers) else which
        percent = max(1, math.ceil(100.0 * share))
        rest = f"one of the two has at most {percent} % of its largest proportion"
        if len(numbers) > 2:
            rest = f"all but one have at most {percent} % of their largest proportions"
        said.append(f"{which}: in every sample of the fit, {rest}.")
    joined = [[names[g] for g in numbers] for numbers, _ in sets]
    call = ", ".join(map(repr, joined if len(joined) > 1 else joined[0]))
    options = [json.dumps(",".join(map(str, one)), ensure_ascii=False) for one in joined]
    option = " ".join(f"--join {one}" for one in options)
    return f"{' '.join(said)} To make them one: study.join({call}), or {option} of skmix compose."
