"""Populations by their markers: means, and names such as CD3⁺ CD4⁺.

A threshold divides each marker into low and high. Of all splits of the populations' means into low and high
ones, that with the largest variance between the two sides is taken (Otsu, 1979); the threshold is as many
standard deviations above the highest low population as it is below the lowest high one. A population is high
if at least 70 % of its cells lie above the threshold, low if at most 30 % do, and neither in between. Its
name has the markers that tell it from most others, preferably those in which few cells are high, and at least
two if a second one tells it from half of the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from ..data.fcs import is_scatter
from ..engine.records import FloatArray, IntArray
from ..engine.structures import structure_of
from .populations import Populations, average_weights

_TINY = float(np.finfo(float).tiny)
# Most markers in a name.
_MOST = 3
# Least share of cells above the threshold of a population that is high.
_CLEAR = 0.7
_SIGNS = {1: "⁺", -1: "⁻"}
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

    proportions: FloatArray  # (G,): in all cells
    means: FloatArray  # (G, M)
    deviations: FloatArray  # (G, M): of the means from that of all cells, in standard deviations of all cells


def profiles(model: Any, populations: Populations | None) -> Profiles:
    """Return the profiles of the populations, or kernels, of a mixture with NumPy arrays."""
    shares, means, variances = _kernels(model, populations)
    proportions = average_weights(model) @ (shares > 0.0)
    own = shares.T @ means
    centre = proportions @ own
    spread = np.sqrt(average_weights(model) @ (variances + (means - centre) ** 2))
    return Profiles(proportions, own, (own - centre) / np.where(spread > 0.0, spread, 1.0))


def _kernels(model: Any, populations: Populations | None) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the shares (K, G) of kernels in populations, and the means and variances (K, M) of kernels."""
    weights, means = average_weights(model), model.means_
    members = np.eye(len(means)) if populations is None else populations.members
    # The kernels of a population of zero weight count equally.
    shares = np.where(weights @ members > 0.0, weights[:, None], 1.0) * members
    structure = structure_of(model.covariance_type_)
    variances = np.broadcast_to(structure.variances(model.covariances_[None])[0], means.shape)
    return shares / shares.sum(axis=0), means, variances


def marker_names(model: Any, populations: Populations, markers: Sequence[str]) -> dict[int, str]:
    """Return the names of populations by number, given the names (M,) of the markers.

    Populations that no marker describes have none. Names that several populations would share are numbered.
    """
    signs, short = _signs(model, populations), short_markers(markers)
    known = profiles(model, populations)
    values = np.where((signs > 0) & (known.proportions @ (signs > 0) <= 0.5), 2, 1)
    # Channels beside others that say their marker have none.
    stained = np.array([_CHANNEL.search(label) is not None for label in markers])
    signs[:, [is_scatter(name) for name in short] | (~stained & stained.any())] = 0
    found: dict[int, str] = {}
    for number, own in enumerate(signs):
        chosen = _telling(own, np.delete(signs, number, axis=0), values[number], known.deviations[number])
        order = sorted(chosen, key=lambda marker: (-own[marker], _natural(short[marker])))
        if order:
            found[number] = " ".join(f"{short[marker]}{_SIGNS[own[marker]]}" for marker in order)
    counts = Counter(found.values())
    seen: Counter[str] = Counter()
    for number, name in found.items():
        seen[name] += 1
        found[number] = name if counts[name] == 1 else f"{name} {seen[name]}"
    return found


def names_after_joining(
    model: Any, old: Populations, new: Populations, markers: Sequence[str]
) -> dict[int, str]:
    """Return the names of new populations, each of which consists of one or more of the old ones.

    Names that are not those by the markers (M,) stay; a new population has such a name only if one of its
    parts has.
    """
    by_markers, kept = marker_names(model, old, markers), dict[int, list[str]]()
    for number, name in old.names.items():
        if name != by_markers.get(number):
            kept.setdefault(int(new.of_kernels[old.of_kernels == number][0]), []).append(name)
    found = {number: names[0] for number, names in kept.items() if len(names) == 1}
    again = marker_names(model, new, markers)
    return {number: name for number, name in again.items() if name not in found.values()} | found


def _signs(model: Any, populations: Populations) -> IntArray:
    """Return 1 where a population is high in a marker, -1 where it is low, and 0 elsewhere (G, M)."""
    shares, means, variances = _kernels(model, populations)
    own = shares.T @ means
    spreads = np.sqrt(np.maximum(shares.T @ (variances + means**2) - own**2, 0.0))
    weights = average_weights(model) @ populations.members
    thresholds = np.array([_threshold(*each, weights) for each in zip(own.T, spreads.T, strict=True)])
    above = shares.T @ ndtr((means - thresholds) / np.sqrt(variances))
    return np.where(above >= _CLEAR, 1, np.where(above <= 1.0 - _CLEAR, -1, 0))


def _threshold(means: FloatArray, spreads: FloatArray, weights: FloatArray) -> float:
    """Return the threshold of a marker, given means, standard deviations and weights (G,) of populations."""
    order = np.argsort(means, kind="stable")
    means, spreads, weights = means[order], spreads[order], weights[order] / weights.sum()
    below, moment = np.cumsum(weights), np.cumsum(weights * means)
    between = (moment - below * moment[-1]) ** 2 / np.maximum(below * (1.0 - below), _TINY)
    low = int(np.argmax(between[:-1])) if len(means) > 1 else 0
    high = min(low + 1, len(means) - 1)
    return float(np.average(means[[low, high]], weights=spreads[[high, low]] + _TINY))


def _telling(own: IntArray, others: IntArray, values: IntArray, deviations: FloatArray) -> list[int]:
    """Return at most three markers that tell a population of signs (M,) from the others (G - 1, M).

    Each step takes the marker that excludes most of the others, times the `values` (M,) of markers; of equal
    ones, that with the largest of the `deviations` (M,).
    """
    excludes, left = (own * others < 0).T, np.ones(len(others), dtype=bool)
    chosen: list[int] = []
    while len(chosen) < _MOST:
        gains = (excludes & left).sum(axis=1) * values
        best = int(np.lexsort((np.abs(deviations), gains))[-1])
        if not gains[best]:
            break
        chosen.append(best)
        left &= ~excludes[best]
    # A second marker says of which kind the population is, such as CD3⁺ beside CD4⁺.
    kinds = np.where(own > 0, excludes.sum(axis=1), 0)
    kinds[chosen] = 0
    if len(chosen) == 1 and 2 * kinds.max() >= len(others):
        chosen.append(int(np.argmax(kinds)))
    return chosen


def _natural(name: str) -> list[Any]:
    """Return a key that sorts CD3 before CD19."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]
