"""Populations by their markers: means, and names such as CD3⁺ CD4⁺.

A threshold divides each marker into low and high. Of all splits of the populations' means into low and high
ones, that with the largest variance between the two sides is taken (Otsu, 1979); the threshold is as many
standard deviations above the highest low population as it is below the lowest high one. A population is high
(⁺) if at least 70 % of its cells lie above the threshold, low (⁻) if at most 30 % do, and neither in between.
Its name has the markers that tell it from most others, preferably those in which few cells are high, and at
least two if a second one tells it from half of the others.

Populations that would have the same name are divided once more, where the largest gap between their means is,
in standard deviations: of two that are high in this marker, the upper one is called high instead of ⁺; of two
that are low in it, low instead of ⁻; of others, one is called low and one high.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..data import is_scatter
from ..engine.records import BoolArray, FloatArray, IntArray
from ..model import Kernels
from .populations import Populations, average_weights

_TINY = float(np.finfo(float).tiny)
# Most markers in a name.
_MOST = 3
# Least share of cells above the threshold of a population that is high.
_CLEAR = 0.7
_SIGNS = {1: "⁺", -1: "⁻"}
# Names of the lower and upper of two populations that are both low, both high, or neither.
_LEVELS = {-1: ("⁻", " low"), 0: (" low", " high"), 1: ("⁺", " high")}
# Least gap between means, in sums of standard deviations, by which populations are named.
_LEAST_GAP = 0.2
_ELEMENT = "Y|Rh|Pd|Ag|Cd|In|Sn|I|Xe|Cs|Ba|La|Ce|Pr|Nd|Sm|Eu|Gd|Tb|Dy|Ho|Er|Tm|Yb|Lu|Hf|Ir|Pt|Pb|Bi"
# A metal beside a marker: 171Yb_CD3, CD3 (Yb171Di), CD3(Yb171)Di.
_METAL = re.compile(
    rf"(?:\(|(?<![A-Za-z0-9]))(\d{{2,3}}({_ELEMENT})|({_ELEMENT})\d{{2,3}})(D[di])?\)?(D[di])?(?![A-Za-z0-9])"
)
# A channel after a marker: CD3 (PE-A).
_CHANNEL = re.compile(r"(?<=\S) \([^()]*\)$")


def short_markers(labels: Sequence[str]) -> list[str]:
    """Return markers without channel and metal, such as CD3 for CD3 (PE-A); in full if two would be alike."""
    short = [_METAL.sub("", _CHANNEL.sub("", label)).strip(" _-") or label for label in labels]
    counts = Counter(short)
    return [one if counts[one] == 1 else label for one, label in zip(short, labels, strict=True)]


@dataclass(frozen=True)
class Profiles:
    """G populations, or kernels, in M markers."""

    shares: FloatArray  # (K, G): of the kernels in each
    weights: FloatArray  # (K,): of the kernels in all cells
    kernel_means: FloatArray  # (K, M)
    kernel_variances: FloatArray  # (K, M)

    @property
    def proportions(self) -> FloatArray:
        """Proportions (G,) in all cells."""
        return np.asarray(self.weights @ (self.shares > 0.0))

    @property
    def means(self) -> FloatArray:
        """Means (G, M)."""
        return np.asarray(self.shares.T @ self.kernel_means)

    @property
    def spreads(self) -> FloatArray:
        """Standard deviations (G, M)."""
        squares = self.shares.T @ (self.kernel_variances + self.kernel_means**2)
        return np.sqrt(np.maximum(squares - self.means**2, 0.0))

    @property
    def deviations(self) -> FloatArray:
        """Distances (G, M) of the means from that of all cells, in standard deviations of all cells."""
        centre = self.proportions @ self.means
        spread = np.sqrt(self.weights @ (self.kernel_variances + (self.kernel_means - centre) ** 2))
        return (self.means - centre) / np.where(spread > 0.0, spread, 1.0)

    def signs(self) -> IntArray:
        """Return 1 where a population is high in a marker, -1 where it is low, and 0 elsewhere (G, M)."""
        markers = zip(self.means.T, self.spreads.T, strict=True)
        thresholds = np.array([_threshold(means, spreads, self.proportions) for means, spreads in markers])
        above = self.shares.T @ ndtr((self.kernel_means - thresholds) / np.sqrt(self.kernel_variances))
        return np.where(above >= _CLEAR, 1, np.where(above <= 1.0 - _CLEAR, -1, 0))


def profiles(model: Any, populations: Populations | None) -> Profiles:
    """Return the profiles of the populations, or kernels, of a mixture with NumPy arrays."""
    weights, kernels = average_weights(model), Kernels.of(model)
    members = np.eye(len(weights)) if populations is None else populations.members
    # The kernels of a population of zero weight count equally.
    shares = np.where(weights @ members > 0.0, weights[:, None], 1.0) * members
    variances = np.diagonal(kernels.covariances, axis1=1, axis2=2)
    return Profiles(shares / shares.sum(axis=0), weights, kernels.means, variances)


def marker_names(model: Any, populations: Populations, markers: Sequence[str]) -> dict[int, str]:
    """Return the names of populations by number, given the names (M,) of the markers.

    Populations that no marker describes have none. Names are numbered only where markers tell nothing apart.
    """
    profile, short = profiles(model, populations), short_markers(markers)
    signs, deviations = profile.signs(), profile.deviations
    values = np.where((signs > 0) & (profile.proportions @ (signs > 0) <= 0.5), 2, 1)
    # Channels beside others that say their marker have none.
    stained = np.array([_CHANNEL.search(label) is not None for label in markers])
    is_named = ~(np.array([is_scatter(name) for name in short]) | (~stained & stained.any()))
    signs[:, ~is_named] = 0
    tokens: list[dict[int, str]] = []
    for g, of_one in enumerate(signs):
        chosen = _telling(of_one, np.delete(signs, g, axis=0), values[g], deviations[g])
        chosen.sort(key=lambda marker: (-of_one[marker], _natural(short[marker])))
        tokens.append({marker: _SIGNS[of_one[marker]] for marker in chosen})
    alike: dict[str, list[int]] = {}
    for g, levels in enumerate(tokens):
        alike.setdefault(str(levels), []).append(g)
    for group in alike.values():
        _divide(group, tokens, profile, signs, is_named, np.ones_like(is_named))
    names = {
        g: " ".join(f"{short[marker]}{level}" for marker, level in levels.items())
        for g, levels in enumerate(tokens)
        if levels
    }
    counts, seen = Counter(names.values()), Counter[str]()
    for g, name in names.items():
        seen[name] += 1
        names[g] = name if counts[name] == 1 else f"{name} {seen[name]}"
    return names


def _divide(
    group: list[int],
    tokens: list[dict[int, str]],
    profile: Profiles,
    signs: IntArray,
    is_named: BoolArray,
    is_free: BoolArray,
) -> None:
    """Tell the populations of a group apart by levels of further markers, which it adds to their tokens.

    Those that differ by nothing stay alike. `is_free` (M,) are the markers that have not told them apart yet;
    those that are not named, such as scatter, come last.
    """
    if len(group) == 1:
        return
    means, spreads = profile.means[group], profile.spreads[group]
    order = np.argsort(means, axis=0, kind="stable")
    means, spreads = np.take_along_axis(means, order, 0), np.take_along_axis(spreads, order, 0)
    gaps = np.diff(means, axis=0) / (spreads[1:] + spreads[:-1] + _TINY)
    gaps[:, ~is_free] = 0.0
    if (gaps[:, is_named] >= _LEAST_GAP).any():
        gaps[:, ~is_named] = 0.0
    place, marker = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    if gaps[place, marker] < _LEAST_GAP:
        return
    lower, upper = ([group[i] for i in part] for part in np.split(order[:, marker], [place + 1]))
    together = set(signs[group, marker].tolist())
    low, high = _LEVELS[together.pop() if len(together) == 1 else 0]
    is_free = is_free & (np.arange(len(is_free)) != marker)
    for part, level in ((lower, low), (upper, high)):
        for g in part:
            tokens[g][int(marker)] = level
        _divide(sorted(part), tokens, profile, signs, is_named, is_free)


def names_after_change(
    model: Any, old: Populations, new: Populations, markers: Sequence[str]
) -> dict[int, str]:
    """Return the names of new populations of the same kernels as the old ones, joined or divided.

    Names that are not those by the markers (M,) stay; a new population has such a name only if just one of
    its parts has, and a part of an old population has none.
    """
    by_markers, given = marker_names(model, old, markers), dict[int, list[str]]()
    for number, name in old.names.items():
        into = np.unique(new.of_kernels[old.of_kernels == number])
        if name != by_markers.get(number) and len(into) == 1:
            given.setdefault(int(into[0]), []).append(name)
    kept = {number: names[0] for number, names in given.items() if len(names) == 1}
    again = marker_names(model, new, markers)
    return {number: name for number, name in again.items() if name not in kept.values()} | kept


def dividing_marker(model: Any, one: IntArray, other: IntArray) -> int:
    """Return the marker in which two sets of kernels are furthest apart, in sums of their deviations."""
    sets = np.full(len(model.means_), 2)
    sets[one], sets[other] = 0, 1
    of_both = profiles(model, Populations(sets, np.zeros((0, 4))))
    means, spreads = of_both.means[:2], of_both.spreads[:2]
    return int(np.argmax(np.abs(means[0] - means[1]) / (spreads.sum(axis=0) + _TINY)))


def _threshold(means: FloatArray, spreads: FloatArray, weights: FloatArray) -> float:
    """Return the threshold of a marker, given means, standard deviations and weights (G,) of populations."""
    order = np.argsort(means, kind="stable")
    means, spreads, weights = means[order], spreads[order], weights[order] / weights.sum()
    below, moment = np.cumsum(weights), np.cumsum(weights * means)
    between = (moment - below * moment[-1]) ** 2 / np.maximum(below * (1.0 - below), _TINY)
    low = int(np.argmax(between[:-1])) if len(means) > 1 else 0
    high = min(low + 1, len(means) - 1)
    return float(np.average(means[[low, high]], weights=spreads[[high, low]] + _TINY))


def _telling(signs: IntArray, others: IntArray, values: IntArray, deviations: FloatArray) -> list[int]:
    """Return at most three markers that tell a population of signs (M,) from the others (G - 1, M).

    Each step takes the marker that excludes most of the others, times the `values` (M,) of markers; of equal
    ones, that with the largest of the `deviations` (M,).
    """
    excludes, left = (signs * others < 0).T, np.ones(len(others), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < _MOST:
        gains = (excludes & left).sum(axis=1) * values
        best = int(np.lexsort((np.abs(deviations), gains))[-1])
        if not gains[best]:
            break
        chosen.append(best)
        left &= ~excludes[best]
    # A second marker says of which kind the population is, such as CD3⁺ beside CD4⁺.
    kinds = np.where(signs > 0, excludes.sum(axis=1), 0)
    kinds[chosen] = 0
    if len(chosen) == 1 and 2 * kinds.max() >= len(others):
        chosen.append(int(np.argmax(kinds)))
    return chosen


def _natural(name: str) -> list[Any]:
    """Return a key that sorts CD3 before CD19."""
    parts = filter(None, re.split(r"(\d+)", name))
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
