"""Comparisons of the proportions in samples of different conditions; samples are the units of all tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import nearest
from ..engine.records import BoolArray, FloatArray, IntArray
from ..model import warn_caller
from .description import Composition, pandas, places_of, shown
from .judging import holm
from .metadata import Columns, column_of

if TYPE_CHECKING:
    from pandas import DataFrame

# Least variance of proportions among samples, relative to that of their estimates: a few samples with few
# cells of a population may have equal counts by chance.
_LEAST_VARIANCE = 0.5
# Upper end of an interval of 95 %.
_UPPER = 0.975
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Design:
    """The columns of a comparison: a condition, and pairs or a covariate.

    Differences are those from the reference, a value of the condition; without one, the value that comes last
    in sorted order is the reference.
    """

    condition: str
    pair: str | None = None
    covariate: str | None = None
    reference: Any = None

    @classmethod
    def of(
        cls, condition: str | None, pair: str | None, covariate: str | None, reference: Any = None
    ) -> Design | None:
        """Return the design of these arguments; None without a condition."""
        if condition is not None:
            return cls(condition, pair, covariate, reference)
        for argument, value in (("pair", pair), ("covariate", covariate), ("reference", reference)):
            if value is not None:
                raise ArgumentError(Argument(argument, value), " needs ", Argument("condition"), ".")
        return None

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of the metadata by argument."""
        return {"condition": self.condition, "pair": self.pair, "covariate": self.covariate}


@dataclass(frozen=True)
class Sides:
    """Two sides of samples, those of the first before those of the second, the reference."""

    names: tuple[Any, Any]  # of the sides
    places: IntArray  # (L,): indices among the samples of the study
    is_first: BoolArray  # (L,)
    pairs: IntArray | None = None  # (L,): number of the pair of each sample
    covariate: FloatArray | None = None  # (L, C): columns of a linear model
    left_out: tuple[Any, ...] = ()  # samples without a condition, pair or covariate

    def joined(self) -> list[tuple[int, int]]:
        """Return which samples of the two sides are of the same pair, as indices of `places`."""
        if self.pairs is None:
            return []
        one, other = np.flatnonzero(self.is_first), np.flatnonzero(~self.is_first)
        return [(i, j) for i in one.tolist() for j in other.tolist() if self.pairs[i] == self.pairs[j]]


class Comparison:
    """Differences between the proportions of samples of different conditions, printed as a table.

    `Study.compare` makes it.

    Attributes
    ----------
    table : pandas.DataFrame
        Of two sides, a line for each `population` or `kernel`: `proportion_a` and `proportion_b`, means over
        samples (with a condition, its values replace `a` and `b`, the reference last); `difference`, the
        first less the second; `lower`, `upper`, `p_value`, and `q_value`: of the lines up to 0.05, about 5 %
        or less are expected to be false discoveries (Benjamini and Hochberg).

        Of three or more values of a condition, lines for each value beside the reference: `condition`,
        `reference`, `proportion`, `proportion_reference` and the same; and `p_adjusted`, adjusted for the
        number of values (Holm), from which q-values follow.
    """

    table: DataFrame

    def __init__(self, composition: Composition, sides: Sequence[Sides], design: Design | None) -> None:
        self.sides, self.design, self._composition = list(sides), design, composition
        columns = []
        for side in self.sides:
            of_sides = composition.take(side.places)
            columns.append(differences(of_sides.counted, of_sides.variances, side))
        self.table = self._table(columns)

    def _table(self, columns: list[dict[str, FloatArray]]) -> DataFrame:
        noun, names = self._composition.noun, self._composition.populations
        if len(columns) == 1:
            q_values = stats.false_discovery_control(columns[0]["p_value"])
            return pandas().DataFrame({noun: names} | columns[0] | {"q_value": q_values})
        lines = []
        for side, of_value in zip(self.sides, columns, strict=True):
            first, reference, *others = of_value
            value, base = side.names
            named = {noun: names, "condition": value, "reference": base}
            named |= {"proportion": of_value[first], "proportion_reference": of_value[reference]}
            lines.append(pandas().DataFrame(named | {name: of_value[name] for name in others}))
        table = pandas().concat(lines, ignore_index=True)
        # Each population has a test for each value of the condition.
        p_values = np.stack([of_value["p_value"] for of_value in columns])
        table["p_adjusted"] = np.apply_along_axis(holm, 0, p_values).ravel()
        table["q_value"] = stats.false_discovery_control(table["p_adjusted"])
        return table

    @property
    def tables(self) -> list[DataFrame]:
        """The lines of each value of the condition that is compared with the reference."""
        size = len(self._composition.populations)
        return [
            self.table.iloc[first : first + size].reset_index(drop=True)
            for first in range(0, len(self.table), size)
        ]

    @property
    def q_values(self) -> FloatArray:
        """The smallest q-value (G,) of each population."""
        return np.asarray(self.table["q_value"].to_numpy().reshape(len(self.sides), -1).min(axis=0))

    @property
    def order(self) -> list[int]:
        """Numbers of the populations, that of the clearest difference first."""
        p_values = self.table["p_value"].to_numpy().reshape(len(self.sides), -1).min(axis=0)
        return [int(g) for g in np.lexsort((p_values, self.q_values))]

    @property
    def conditions(self) -> dict[Any, IntArray]:
        """Indices of the samples of each condition, the reference last."""
        places = {side.names[0]: side.places[side.is_first] for side in self.sides}
        reference = [side.places[~side.is_first] for side in self.sides]
        return places | {self.sides[0].names[1]: np.unique(np.concatenate(reference))}

    def is_of(self, composition: Composition) -> bool:
        """Whether it is of these samples and populations."""
        ours = self._composition
        same_number = len(ours.populations) == len(composition.populations)
        return same_number and np.array_equal(ours.names, composition.names)

    def joined(self) -> list[tuple[int, int]]:
        """Return which samples are of the same pair, as indices of the samples of the study."""
        return [(int(side.places[i]), int(side.places[j])) for side in self.sides for i, j in side.joined()]

    def plot(self, axes: Any = None) -> np.ndarray:
        """Plot the proportions as box plots, a panel for each population, the clearest difference first.

        Points are samples, and lines join those of a pair.
        """
        from .plots import plot_comparison

        return plot_comparison(self, self._composition, axes)

    def __repr__(self) -> str:
        return str(self.table.to_string(index=False))

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


# ---------------------------------------------------------------- which samples are compared


def asked_sides(
    samples: np.ndarray,
    table: Columns | None,
    default: Design | None,
    condition: Any,
    other: Any,
    pair: str | None,
    covariate: str | None,
) -> tuple[list[Sides], Design | None]:
    """Return the sides that the arguments of `Study.compare` ask for, and their design, if they have one."""
    is_column = condition is None or (isinstance(condition, str) and condition in (table or ()))
    design = None
    if other is not None and not is_column:
        sides = [given_sides(samples, table, condition, other, pair, covariate)]
    else:
        design = default if condition is None else Design(condition, pair, covariate)
        if design is None or (condition is None and (pair, covariate) != (None, None)):
            raise ArgumentError(Argument("condition"), " is missing: give a column of the metadata.")
        if other is None and default is not None and default.condition == design.condition:
            other = default.reference
        design = replace(design, reference=other)
        sides, warnings = sides_of(samples, table, design)
        for warning in warnings:
            warn_caller(warning)
    # With several values, a sample of the reference may lack a partner on one side only.
    used = {samples[place] for side in sides for place in side.places}
    left_out = list(dict.fromkeys(name for side in sides for name in side.left_out if name not in used))
    if left_out:
        lacks = "" if sides[0].covariate is None else " or of the covariate"
        lacks = lacks if sides[0].pairs is None else " or of a partner"
        warn_caller(f"Left out of the comparison: {shown(left_out)}, for lack of a condition{lacks}.")
    return sides, design


def sides_of(
    samples: np.ndarray, table: Columns | None, design: Design
) -> tuple[list[Sides], list[ArgumentWarning]]:
    """Return the sides of a condition in the metadata of samples (L,): each value beside the reference.

    Values that cannot be compared, such as rare ones, are left out, each with a warning to give.
    """
    column = column_of(table, "condition", design.condition)
    texts = [None if value is None else str(value) for value in column]
    values = sorted({text for text in texts if text is not None})
    if len(values) < 2:
        raise ArgumentError(
            Argument("condition", design.condition), f" must have two values or more, but has {values}."
        )
    reference = values[-1] if design.reference is None else str(design.reference)
    if reference not in values:
        there = f"{values}.{nearest(reference, values)}"
        raise ArgumentError(
            Argument("reference", reference), f" is not a value of {design.condition}, which has {there}"
        )
    places = {value: np.flatnonzero([text == value for text in texts]) for value in values}
    without = samples[[text is None for text in texts]].tolist()
    sides, problems = [], dict[str, ArgumentError]()
    for value in values:
        if value != reference:
            both = places[value], places[reference]
            try:
                side = _sides(samples, table, (value, reference), *both, design.pair, design.covariate)
            except ArgumentError as error:
                problems[value] = error
            else:
                sides.append(replace(side, left_out=(*without, *side.left_out)))
    if not sides:
        raise next(iter(problems.values()))
    return sides, [
        ArgumentWarning(f"{value!r} of {design.condition} is not compared: ", *problem.pieces)
        for value, problem in problems.items()
    ]


def given_sides(
    samples: np.ndarray, table: Columns | None, one: Any, other: Any, pair: str | None, covariate: str | None
) -> Sides:
    """Return sides given as names of samples."""
    first, second = places_of(samples, one, "condition"), places_of(samples, other, "other")
    both = samples[np.intersect1d(first, second)].tolist()
    if both:
        raise ValueError(f"condition and other both have {shown(both)}.")
    return _sides(samples, table, ("a", "b"), first, second, pair, covariate)


def _sides(
    samples: np.ndarray,
    table: Columns | None,
    names: tuple[Any, Any],
    first: IntArray,
    second: IntArray,
    pair: str | None,
    covariate: str | None,
) -> Sides:
    """Return the sides, with the samples of complete pairs or with a covariate only."""
    places, is_first = np.concatenate([first, second]), np.repeat([True, False], [len(first), len(second)])
    if pair is not None and covariate is not None:
        raise ArgumentError(
            Argument("pair", pair),
            " and ",
            Argument("covariate", covariate),
            " cannot be combined: pairs are compared within, where what they have in common does not matter.",
        )
    if pair is None and covariate is None:
        return Sides(names, places, is_first)
    column = column_of(table, "pair", pair) if pair is not None else column_of(table, "covariate", covariate)
    values = np.array([column[place] for place in places], dtype=object)
    known = {value for value in values if value is not None}
    if pair is not None:
        known &= set(values[is_first]) & set(values[~is_first])
    kept = np.array([value in known for value in values])
    left_out = tuple(samples[places[~kept]].tolist())
    places, is_first, values = places[kept], is_first[kept], values[kept]
    if pair is None:
        columns = _covariate(Argument("covariate", covariate), values.tolist(), is_first)
        return Sides(names, places, is_first, None, columns, left_out)
    if len(known) < 2:
        raise ArgumentError(
            Argument("pair", pair),
            f" has samples of both {names[0]} and {names[1]} in {len(known)} pair(s): at least 2 are needed.",
        )
    numbers = {value: number for number, value in enumerate(sorted(known, key=str))}
    pairs = np.array([numbers[value] for value in values])
    return Sides(names, places, is_first, pairs, None, left_out)


def _covariate(argument: Argument, values: Sequence[Any], is_first: BoolArray) -> FloatArray:
    """Return the columns (L, C) of a covariate in a linear model: one of numbers, or one for each category.

    Whole numbers that each have several samples are categories, such as batches 1, 2 and 3.
    """
    counts = Counter(values)
    if len(counts) < 2:
        raise ArgumentError(argument, f" must have two values or more, but has {list(counts)}.")
    are_numbers = all(isinstance(value, Real) and not isinstance(value, (bool, np.bool_)) for value in counts)
    if are_numbers and not (min(counts.values()) > 1 and all(float(value).is_integer() for value in counts)):
        columns = np.array(values, dtype=np.float64)[:, None]
        if not np.isfinite(columns).all():
            raise ArgumentError(argument, " has an infinite value.")
        columns = (columns - columns.mean()) / (columns.std() or 1.0)
    else:
        others = [*counts][1:]
        columns = np.array([[value == other for other in others] for value in values], dtype=np.float64)
    n_samples, n_columns = columns.shape
    if n_samples < n_columns + 3:
        raise ArgumentError(
            argument,
            f" has {len(counts)} values in {n_samples} samples: at least {n_columns + 3} samples are needed.",
        )
    if np.linalg.matrix_rank(np.column_stack([np.ones(n_samples), is_first, columns])) < n_columns + 2:
        raise ArgumentError(
            argument, " is confounded with the condition: each of its values is on one side only."
        )
    return columns


# ---------------------------------------------------------------- statistics


def differences(proportions: FloatArray, variances: FloatArray, sides: Sides) -> dict[str, FloatArray]:
    """Return the columns (G,) of a comparison for samples with proportions (L, G) and their variances."""
    if proportions.shape[1] == 1:
        # A single population has all cells of all samples.
        columns = tuple(np.array([value]) for value in (1.0, 1.0, 0.0, 0.0, 0.0, 1.0))
    elif sides.pairs is not None:
        columns = _paired(proportions, variances, sides.is_first, sides.pairs)
    elif sides.covariate is not None:
        columns = _adjusted(proportions, variances, sides.is_first, sides.covariate)
    else:
        columns = _unpaired(proportions, variances, sides.is_first)
    names = [*(f"proportion_{name}" for name in sides.names), "difference", "lower", "upper", "p_value"]
    return dict(zip(names, columns, strict=True))


def _unpaired(proportions: FloatArray, variances: FloatArray, is_first: BoolArray) -> tuple[FloatArray, ...]:
    """Compare means by Welch's test, with the degrees of freedom of Satterthwaite."""
    (mean_a, variance_a, inverse_a), (mean_b, variance_b, inverse_b) = (
        _mean_of_samples(proportions[side], variances[side]) for side in (is_first, ~is_first)
    )
    difference, variance = mean_a - mean_b, variance_a + variance_b
    inverse = (variance_a**2 * inverse_a + variance_b**2 * inverse_b) / variance**2
    distribution, deviation = stats.t(1.0 / np.maximum(inverse, 1e-12)), np.sqrt(variance)
    reach = distribution.ppf(_UPPER) * deviation
    limits = np.maximum(difference - reach, -1.0), np.minimum(difference + reach, 1.0)
    p_values = 2.0 * distribution.sf(np.abs(difference) / deviation)
    return mean_a, mean_b, difference, *limits, p_values


def _mean_of_samples(proportions: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return mean proportions (G,) of samples (L, G), their variances, and one over the degrees of freedom.

    One sample has the variance of its own proportion. Several samples have the variance among them, but at
    least half of the mean variance of their proportions.
    """
    n_samples, mean = len(proportions), proportions.mean(axis=0)
    if n_samples == 1:
        return mean, variances[0], 0.0
    among = np.maximum(proportions.var(axis=0, ddof=1), _LEAST_VARIANCE * variances.mean(axis=0))
    return mean, among / n_samples, 1.0 / (n_samples - 1)


def _paired(
    proportions: FloatArray, variances: FloatArray, is_first: BoolArray, pairs: IntArray
) -> tuple[FloatArray, ...]:
    """Compare the sides within pairs (L,): each has the mean proportion of its samples of a side."""
    n_pairs = int(pairs.max()) + 1
    # A line for each pair and side, which averages their samples.
    average = (pairs + n_pairs * ~is_first)[:, None] == np.arange(2 * n_pairs)
    average = (average / average.sum(axis=0)).T
    of_pairs = np.tile(np.eye(n_pairs)[:, 1:], (2, 1))
    # For one sample of each side, this is the t-test of the differences within pairs.
    is_first = np.repeat([True, False], n_pairs)
    return _adjusted(average @ proportions, average**2 @ variances, is_first, of_pairs)


def _adjusted(
    proportions: FloatArray, variances: FloatArray, is_first: BoolArray, columns: FloatArray
) -> tuple[FloatArray, ...]:
    """Compare the sides in a linear model of arcsin √p with further columns (L, C).

    On this scale, the variance of a proportion depends little on its mean. Proportions are those of the model
    at the means of the further columns. The interval is that of the model with the average of the two sides
    held fixed: sin²(m + d/2) − sin²(m − d/2) = sin 2m sin d.
    """
    angles = np.arcsin(np.sqrt(np.clip(proportions, 0.0, 1.0)))
    design = np.column_stack([is_first, np.ones(len(is_first)), columns])
    inverse = np.linalg.pinv(design)
    effects, degrees = inverse @ angles, len(design) - design.shape[1]
    among = ((angles - design @ effects) ** 2).sum(axis=0) / degrees
    mean = proportions.mean(axis=0)
    binomial = np.maximum(4.0 * mean * (1.0 - mean), _TINY)
    among = np.maximum(among, _LEAST_VARIANCE * variances.mean(axis=0) / binomial)
    distribution, deviation = stats.t(degrees), np.sqrt(among * (inverse[0] @ inverse[0]))
    change, reach = effects[0], distribution.ppf(_UPPER) * deviation
    middle = np.clip(angles.mean(axis=0) + (0.5 - is_first.mean()) * change, 0.0, 0.5 * np.pi)
    first, second = (np.sin(middle + 0.5 * sign * change) ** 2 for sign in (1.0, -1.0))
    difference, lower, upper = (
        np.sin(2.0 * middle) * np.sin(np.clip(value, -0.5 * np.pi, 0.5 * np.pi))
        for value in (change, change - reach, change + reach)
    )
    p_values = 2.0 * distribution.sf(np.abs(change) / deviation)
    return first, second, difference, lower, upper, p_values
