"""Conditions of samples, predicted from their proportions: a sample is a bag of cells with one condition.

In simulated studies of 8 to 50 samples, a Dirichlet-multinomial model of the proportions and a normal one of
their arcsin √p were overconfident, and a logistic regression no better; evidence of a bag was calibrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import Argument, ArgumentError
from ..engine.records import BoolArray, FloatArray
from ..model import Bags
from .description import Composition, pandas
from .metadata import align, column_of, read_metadata

if TYPE_CHECKING:
    from pandas import DataFrame


class KnownSamples:
    """Samples (L,), some of known condition (not None); those of a unit, if any, are held out together."""

    def __init__(self, composition: Composition, name: str, column: Sequence[Any], units: Sequence[Any]):
        self.shares, self.sizes = composition.counted, composition.sizes
        self.actual = [None if value is None else str(value) for value in column]
        self.values = sorted({value for value in self.actual if value is not None})
        is_of = np.array(self.actual)[:, None] == np.array(self.values)
        self._is_of, self._known = is_of, is_of.any(axis=1)  # (L, C) and (L,)
        unit_of = [(unit, place if unit is None else None) for place, unit in enumerate(units)]
        self._units = [np.array([own == unit for own in unit_of]) for unit in dict.fromkeys(unit_of)]
        counts = np.sum([is_of[here].any(axis=0) for here in self._units], axis=0).tolist()
        if len(counts) < 2 or min(counts) < 2:
            needed = " must have two values or more, each in two samples or pairs, but has "
            raise ArgumentError(Argument("condition", name), needed, f"{self.values} in {counts}.")
        self._held_out = np.zeros(is_of.shape)
        for here in self._units:
            self._held_out[here] = self._evidence(self.shares[here], self._known & ~here)

    def _evidence(self, shares: FloatArray, known: BoolArray) -> FloatArray:
        """The mean (n, C) over cells of log(Pr(population | condition) / Pr(population)).

        A condition has the mean proportions of its known samples and of one more, the mean of all: a
        population that a few samples lack is not impossible. One that all of them lack says nothing.
        """
        usual, is_of = self.shares[known].mean(axis=0), self._is_of[known].T.astype(np.float64)
        means = (is_of @ self.shares[known] + usual) / (is_of.sum(axis=1, keepdims=True) + 1.0)
        ratios = np.divide(means, usual, out=np.ones_like(means), where=usual > 0.0)
        return np.asarray(shares @ np.log(ratios).T)

    def _probabilities(self, evidence: FloatArray, sizes: FloatArray, known: BoolArray) -> FloatArray:
        """Probabilities (n, C), with the correlation of cells that suits known samples, held out."""
        log_prior = np.log(self._is_of.sum(axis=0) / self._known.sum())

        def bags(own: FloatArray, n: FloatArray) -> Bags:
            return Bags(np.arange(len(n)), np.arange(len(n)), n, n[:, None] * own, log_prior)

        held_out, codes = bags(self._held_out[known], self.sizes[known]), self._is_of[known].argmax(axis=1)
        return np.exp(bags(evidence, sizes).log_posteriors(held_out.best_correlation(codes)))

    def probabilities(self, new: Composition | None = None) -> FloatArray:
        """Probabilities (n, C) of the conditions of new samples, or of these from those of other units."""
        if new is not None:
            return self._probabilities(self._evidence(new.counted, self._known), new.sizes, self._known)
        found = np.zeros_like(self._held_out)
        for here in self._units:
            found[here] = self._probabilities(self._held_out[here], self.sizes[here], self._known & ~here)
        return found

    def score(self) -> dict[str, Any]:
        """How good held-out predictions are, beside the most frequent condition and the shares of all."""
        found, is_of = self.probabilities()[self._known], self._is_of[self._known]
        right, shares = found.argmax(axis=1) == is_of.argmax(axis=1), is_of.mean(axis=0)
        counts = {"samples": len(found), "right": int(right.sum()), "most": int(is_of.sum(axis=0).max())}
        return counts | {"loss": -np.log(found[is_of]).mean(), "loss_of_shares": -(shares @ np.log(shares))}


class PredictMixin:
    """Adds predictions of conditions to studies."""

    def predict(
        self: Any, condition: Any = None, samples: Any = None, *, pair: Any = None, metadata: Any = None
    ) -> DataFrame:
        """Predict a condition of new samples from their proportions, or of the study's samples, held out.

        The proportions of a condition are means over its samples. Cells of a sample depend on each other:
        how much less they say than independent ones is learnt from held-out samples, as in `predict_bags`.
        The prior is the shares of the conditions in the study. Populations do not depend on conditions.

        Parameters
        ----------
        condition : str, default=None
            A column of the metadata with two values or more, each of two samples or more. Samples without a
            value are predicted, but not learnt from. None uses what `compose` was told to compare.
        samples : Study or what `apply_to` takes, default=None
            New samples, such as the study that `apply_to` returned. None predicts each sample of the study
            from the others, which tells how good predictions are.
        pair : str, default=None
            A column of the metadata: samples with the same value, such as a donor, are held out together.
        metadata : DataFrame, mapping of columns or path of a table, default=None
            Conditions of the study's samples; None uses the metadata of the study.

        Returns
        -------
        pandas.DataFrame
            `sample`; without new samples its `actual` condition, as text; the `predicted` one, and the
            probability of each, such as `p_control`.
        """
        table, design = self.about.metadata, self.about.design
        if metadata is not None:
            table = align(read_metadata(metadata, {}), self.samples)
        if condition is None and design is not None:
            condition, pair = design.condition, pair or design.pair
        if condition is None:
            raise ArgumentError(Argument("condition"), " is missing: give a column of the metadata.")
        units = [None] * len(self.samples) if pair is None else column_of(table, "pair", pair)
        column = column_of(table, "condition", condition)
        known = KnownSamples(self.composition, condition, column, units)
        new: Any = samples
        if not isinstance(samples, PredictMixin | None):
            new = self.apply_to(samples)
        elif samples is not None and new.reference is not self.reference:
            raise ValueError("samples is a study of other populations: make it by this study's apply_to.")
        columns = {"sample": self.samples, "actual": known.actual} if new is None else {"sample": new.samples}
        found = known.probabilities(None if new is None else new.composition)
        columns["predicted"] = [known.values[code] for code in found.argmax(axis=1)]
        columns |= {f"p_{value}": own for value, own in zip(known.values, found.T, strict=True)}
        return pandas().DataFrame(columns)
