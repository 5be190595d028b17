"""Tuning a fitted classifier to tell classes apart, after EM has learnt what each of them looks like."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..engine.model import FloatArray, IntArray
from ..engine.refine.discriminative import Tuned, TuningOptions, tune
from ..engine.refine.objective import Labelled
from ..engine.sources.gaps import has_gaps
from ._validation import all_or_nothing, check_weights
from ._variational import OF_THE_POSTERIOR

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture

# With up to this many rows L-BFGS sees all of them at once; with more, mini-batches learn faster.
_ALL_AT_ONCE = 10_000
_BATCH = 500
# From nearly the model that EM found to one that only tells classes apart.
_TRADE_OFFS = (1.0, 0.1, 0.01, 0.001, 0.0)
_TRADE_OFFS_OF_BATCHES = (0.001, 0.0)


class Tuning:
    """Discriminative tuning of the classifier's parameters."""

    if TYPE_CHECKING:
        models_: list[SharedKernelMixture]
        class_prior_: FloatArray
        classes_: np.ndarray
        temperature_: float
        weights_: FloatArray
        means_: FloatArray
        covariances_: FloatArray

        def _rows(self, X: ArrayLike) -> np.ndarray: ...
        def _set_threshold(self, rows: np.ndarray, weights: FloatArray | None) -> None: ...

    def tune(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        trade_off: float | Sequence[float] | str = "auto",
        validation: float | tuple[ArrayLike, ArrayLike] | None = 0.1,
        max_iter: int | None = None,
        batch_size: int | None = None,
        sample_weight: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Tune weights, means and covariances to tell the classes apart.

        EM describes each class as well as it can. Where kernels are few for that, the classes are told apart
        better by maximising Σ log p(c | x) + λ Σ log p(x, c), starting from what EM has found: the first term
        is how well labels are predicted, the second how well rows are described. The log-probabilities of the
        first are softened by a temperature of 3, so that rows near a boundary count even on its right side.
        Priors of the fit (`covariance_prior`, `weight_prior`) stay in force: the imagined rows
        weigh what rows weigh that are certain of their class. Kernels stay Gaussians above the floor of
        `variance_floor`, so that densities, samples and saving go on working; densities fit rows less well
        than before. A posterior that a variational fit has left is no longer one, and goes.

        Held-out rows say when to stop, and which model is best: that of the least log-loss, at the
        temperature that suits it, among those that make no more errors than the fitted one. Where there is
        none, the fitted model stays. In any case `temperature_` is then that of `calibrate` for these rows,
        but at least 1. Without held-out rows nobody decides: the last model stays, and `temperature_` is what
        it was.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows without missing values, as a rule those of the fit.
        y : array-like of shape (N,)
            Their labels.
        trade_off : float, list of float or 'auto', default='auto'
            λ; or several values, each of which goes on from the best model so far, or from the last one where
            no rows are held out. 'auto' is 1, 0.1, 0.01, 0.001 and 0; with mini-batches, 0.001 and 0.
        validation : float, tuple or None, default=0.1
            Share of the rows that is held out, of each class; or held-out rows and their labels, (X, y); or
            None, for who knows λ and `max_iter`: then all rounds are taken, and the last model stays; use
            `calibrate` with other rows for its temperature. A fit that has seen the rows that are held out
            looks better on them than it is, so that tuning stops too early: give rows of their own where the
            model has many parameters for the rows it has.
        max_iter : int, default=None
            Largest number of rounds for each λ: steps of L-BFGS, by default 200, or passes over mini-batches
            with Adam's steps, by default 20. Steps shrink to nothing over the passes, so that more of them
            also learn more slowly.
        batch_size : int, default=None
            Rows of a mini-batch; as many as there are rows, or more, take L-BFGS over all of them. None is
            500 where there are more than 10 000 rows, and all of them otherwise.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows.
        random_state : int, RandomState instance or None, default=None
            Source of randomness of the split and of the mini-batches.

        Returns
        -------
        estimator
            The estimator itself. `tuned_` says how it went.

        Raises
        ------
        ValueError
            With feature groups, covariances of low rank or missing values, and for a class whose prior is
            zero.
        """
        check_is_fitted(self)
        if len(self.models_) > 1:
            raise ValueError(
                f"tune works on one model of all features, but there are {len(self.models_)} feature groups."
            )
        rows, codes = self._tuning_rows(X, y, "X")
        weights = check_weights(sample_weight, rows)
        if weights is not None:
            kept = np.flatnonzero(weights)
            rows, codes, weights = rows[kept], codes[kept], weights[kept]
        random = check_random_state(random_state)
        training, held_out = self._split(Labelled(rows, codes, weights), validation, random)
        with all_or_nothing(self):
            size = _batch_size(batch_size, len(training.codes))
            options = TuningOptions(
                fitted=self.models_[0]._fitted_options(),
                trade_offs=_trade_offs(trade_off, size is not None),
                max_iter=_rounds(max_iter, size is not None),
                batch_size=size,
            )
            found = tune(self.models_[0]._parameters, self.class_prior_, training, held_out, options, random)
            self._keep_tuned(found)
            self._set_threshold(rows, weights)
        return self

    def _tuning_rows(self, X: ArrayLike, y: ArrayLike, name: str) -> tuple[np.ndarray, IntArray]:
        """Return rows and their classes, where tuning can use them."""
        rows = self._rows(X)
        codes = self.models_[0]._codes(y, rows.shape[0])
        if has_gaps(rows):
            raise ValueError(f"tune needs rows without missing values, but {name} has NaN: see `impute`.")
        impossible = np.flatnonzero(self.class_prior_[codes] == 0)
        if len(impossible):
            label = self.classes_.tolist()[codes[impossible[0]]]
            raise ValueError(
                f"{len(impossible)} rows of {name} have a label of class prior zero, such as {label!r}: "
                "no tuning makes them possible."
            )
        return rows, codes

    def _split(
        self, rows: Labelled, validation: Any, random: np.random.RandomState
    ) -> tuple[Labelled, Labelled | None]:
        """Return rows to tune to, and held-out rows."""
        if validation is None:
            return rows, None
        if isinstance(validation, (tuple, list)):
            if len(validation) != 2:
                raise ValueError(f"validation as a tuple is (X, y), got {len(validation)} entries.")
            return rows, Labelled(*self._tuning_rows(validation[0], validation[1], "validation"))
        if not _is_number(validation) or not 0 < validation < 1:
            raise ValueError(
                f"validation must be a share between 0 and 1, a tuple (X, y) or None, got {validation!r}."
            )
        # A class with a single row has none to spare: it is tuned to.
        plentiful = np.bincount(rows.codes)[rows.codes] > 1
        some, few = np.flatnonzero(plentiful), np.flatnonzero(~plentiful)
        n_classes = len(np.unique(rows.codes[some]))
        n_held_out = max(int(np.ceil(validation * len(some))), n_classes)
        if not n_classes or len(some) - n_held_out < n_classes:
            raise ValueError(
                f"{len(rows.codes)} rows of {len(np.unique(rows.codes))} classes are too few to hold out "
                f"{validation:g} of them: give held-out rows as validation=(X, y)."
            )
        kept, held_out = train_test_split(
            some, test_size=n_held_out, stratify=rows.codes[some], random_state=random
        )
        return rows.take(np.sort(np.concatenate([kept, few]))), rows.take(np.sort(held_out))

    def _keep_tuned(self, found: Tuned) -> None:
        """Store the outcome; the model is a copy, so that a failure later on leaves the old one."""
        model = copy(self.models_[0])
        if found.trade_off is not None:
            model.weights_ = self.weights_ = found.parameters.weights
            model.means_ = self.means_ = found.parameters.means
            model.covariances_ = self.covariances_ = found.parameters.covariances
            # What a stream of rows has summed up, or a posterior, belongs to the kernels that were.
            model.__dict__.pop("stream_", None)
            for name in OF_THE_POSTERIOR:
                model.__dict__.pop(name, None)
                self.__dict__.pop(name, None)
        self.models_ = [model]
        if found.after is not None:
            self.temperature_ = found.after.temperature
        self.tuned_ = {
            "trade_off": found.trade_off,
            "before": found.before and vars(found.before).copy(),
            "after": found.after and vars(found.after).copy(),
            "rounds": [{"trade_off": r.trade_off, **vars(r.scores)} for r in found.rounds],
        }


def _batch_size(batch_size: Any, n_rows: int) -> int | None:
    """Return the rows of a mini-batch; None for all of them."""
    if batch_size is None:
        return None if n_rows <= _ALL_AT_ONCE else _BATCH
    _check_count(batch_size, "batch_size")
    return None if batch_size >= n_rows else int(batch_size)


def _rounds(max_iter: Any, in_batches: bool) -> int:
    """Return the largest number of rounds."""
    if max_iter is None:
        return 20 if in_batches else 200
    _check_count(max_iter, "max_iter")
    return int(max_iter)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_count(count: Any, name: str) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1, or None, got {count!r}.")


def _trade_offs(trade_off: Any, in_batches: bool) -> tuple[float, ...]:
    """Return the values of λ to go through."""
    if isinstance(trade_off, str):
        if trade_off != "auto":
            raise ValueError(f"trade_off must be a number, a list of them or 'auto', got {trade_off!r}.")
        return _TRADE_OFFS_OF_BATCHES if in_batches else _TRADE_OFFS
    several = trade_off if isinstance(trade_off, (Sequence, np.ndarray)) else [trade_off]
    if not len(several):
        raise ValueError("trade_off is an empty list.")
    for value in several:
        if not _is_number(value) or not 0 <= value < np.inf:
            raise ValueError(f"trade_off must be finite and not negative, got {value!r}.")
    return tuple(float(value) for value in several)
