"""Calibrate a fitted classifier, or tune it discriminatively with early stopping by held-out rows.

The training rows of a classifier cannot judge it. If the user gives held-out rows, they judge the classifier
itself. Otherwise, some rows are held out of a second fit and judge it while it is tuned; the classifier is
then tuned to all rows for the same number of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..engine.after import tuning as discriminative
from ..engine.after.tuning import Selection, Stage
from ..engine.numbers import has_gaps
from ..engine.rows.blocks import Block
from . import decisions, densities
from .arguments import check_count
from .bags import learn_correlation, rows_in_bags
from .checks import note_rows, updating
from .crossfit import refit, set_threshold
from .fitted import Fitted
from .holdout import rows_to_divide, single_split
from .rows import enter
from .settings import Settings, threads_of
from .solving import fitted_options

# Values of λ, from nearly the EM fit to a model that only separates classes.
_TRADE_OFFS = (1.0, 0.1, 0.01, 0.001, 0.0)
# Largest number of steps for each λ, and the same with many rows, where all steps would take long. On six
# tables of 12,000 to 39,000 rows, 20 steps gained most of what 200 did.
_STEPS, _STEPS_WITH_MANY, _MANY_ROWS = 200, 20, 10_000


def tune(
    classifier: Any,
    rows: Block,
    random: np.random.RandomState,
    *,
    trade_off: Any,
    validation: Any,
    max_iter: int | None,
) -> None:
    """Tune a classifier to rows, and store its model, temperature, threshold and `tuned_`."""
    training, held_out = split_rows(classifier, rows, validation, random)
    stages = _stages(len(training.X), trade_off, max_iter)
    if held_out is None or isinstance(validation, (tuple, list)):
        model, selection = _tuned_model(classifier, stages, training, held_out)
    else:
        # Tune to all rows for as many rounds as were best for a second fit, to the training rows only.
        counts = np.bincount(rows.codes, minlength=len(classifier.classes_))
        if not counts.all():
            label = classifier.classes_.tolist()[int(np.argmin(counts))]
            raise ValueError(
                f"tune fits a second model to some of the rows, but none of them has the label {label!r}. "
                "Give rows of all classes, or held-out rows as validation=(X, y)."
            )
        _, selection = _tuned_model(refit(classifier, training), stages, training, held_out)
        model, _ = _tuned_model(classifier, selection.stages, rows, None)
    classifier.models_ = [model]
    if selection.after is not None:
        classifier.temperature_ = selection.after.temperature
    classifier.tuned_ = {
        "trade_off": selection.trade_off,
        "before": selection.before and asdict(selection.before),
        "after": selection.after and asdict(selection.after),
        "rounds": [{"trade_off": value, **asdict(scores)} for value, scores in selection.rounds],
    }

    def finish(other: Any, training: Block) -> None:
        other.models_ = [_tuned_model(other, selection.stages, training, None)[0]]

    if classifier.reject_below is not None:
        set_threshold(classifier, classifier.reject_below, rows, finish)


def _tuned_model(
    classifier: Any, stages: Sequence[Stage], training: Block, held_out: Block | None
) -> tuple[Any, Selection]:
    """A tuned copy of the classifier's only model, and how it was selected."""
    model = copy(classifier.models_[0])
    fitted = Fitted.of(model)
    assert fitted is not None
    # Tuning needs the floor even if kernels were frozen in the fit, without a floor.
    options = replace(
        fitted_options(Settings.of(model), fitted),
        floor=model.variance_floor,
        n_jobs=threads_of(classifier.n_jobs),
    )
    prior = classifier.class_prior_
    selection = discriminative.tune(fitted.parameters, prior, training, held_out, options, stages)
    if selection.trade_off is not None:
        fitted.moved(selection.best).store(model)
    return model, selection


# ---------------------------------------------------------------- rows and settings


def labelled_rows(classifier: Any, X: Any, y: Any, sample_weight: Any = None, name: str = "X") -> Block:
    """Rows of positive weight with class codes; raise ValueError if tuning cannot use them."""
    entered = enter(classifier, X, y, sample_weight, name="y" if name == "X" else f"y of {name}")
    entered = entered.with_columns_of_fit().in_memory()
    rows = entered.values(on_cpu=True)
    codes = entered.codes(len(rows))
    if has_gaps(rows):
        raise ValueError(f"tune needs rows without missing values, but {name} has NaN: see `impute`.")
    impossible = np.flatnonzero(classifier.class_prior_[codes] == 0)
    if len(impossible):
        label = classifier.classes_.tolist()[codes[impossible[0]]]
        raise ValueError(
            f"{len(impossible)} rows of {name} have a label whose class prior is zero, such as {label!r}: "
            "no tuning makes them possible."
        )
    return Block(rows, codes, entered.weights(len(rows))).weighted()


def split_rows(
    classifier: Any, rows: Block, validation: Any, random: np.random.RandomState
) -> tuple[Block, Block | None]:
    """Rows to tune to, and held-out rows: a share of the rows, the given ones, or None."""
    if validation is None:
        return rows, None
    if isinstance(validation, (tuple, list)):
        if len(validation) != 2:
            raise ValueError(f"validation as a tuple is (X, y), got {len(validation)} entries.")
        return rows, labelled_rows(classifier, validation[0], validation[1], name="validation")
    if not _is_number(validation) or not 0 < validation < 1:
        raise ValueError(
            f"validation must be a share between 0 and 1, a tuple (X, y) or None, got {validation!r}."
        )
    codes, some = rows.codes, rows_to_divide(rows.codes)
    n_classes, n_held = len(np.unique(codes[some])), int(np.ceil(validation * len(some)))
    if not n_classes or len(some) - max(n_held, n_classes) < n_classes:
        raise ValueError(
            f"{len(rows.X)} rows of {len(np.unique(codes))} classes are too few to hold out "
            f"{validation:g} of them: give held-out rows as validation=(X, y)."
        )
    training, held = single_split(codes, n_held, random)
    return rows.rows(training), rows.rows(held)


def _stages(n_rows: int, trade_off: Any, max_iter: Any) -> list[Stage]:
    """Values of λ with numbers of steps; raise ValueError for invalid settings."""
    if max_iter is not None:
        check_count(max_iter, "max_iter must be", ", or None")
    n_steps = int(max_iter or (_STEPS_WITH_MANY if n_rows > _MANY_ROWS else _STEPS))
    values = trade_off if isinstance(trade_off, (Sequence, np.ndarray)) else [trade_off]
    if isinstance(trade_off, str):
        if trade_off != "auto":
            raise ValueError(f"trade_off must be a number, a list of them or 'auto', got {trade_off!r}.")
        values = _TRADE_OFFS
    if not len(values):
        raise ValueError("trade_off is an empty list.")
    for value in values:
        if not _is_number(value) or not 0 <= value < np.inf:
            raise ValueError(f"trade_off must be finite and not negative, got {value!r}.")
    return [(float(value), n_steps) for value in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


class TuningMixin:
    """Adds calibration and discriminative tuning to classifiers."""

    models_: list[Any]
    random_state: Any
    temperature_: float

    def calibrate(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        bags: ArrayLike | None = None,
        errors: Any = None,
    ) -> Self:
        """Fit a temperature, and the correlation of rows in a bag, to rows that were not used for training.

        Log-probabilities are divided by the `temperature_` that minimises the log-loss on the given rows, and
        normalised again: it is above one if the model was overconfident, and below one if it was
        underconfident. The most probable class, and so `predict`, does not change.

        With `bags`, also the `bag_correlation_` that minimises the log-loss of whole bags is learnt, see
        `predict_bags_proba`.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Held-out rows. Files are read whole.
        y : array-like of shape (n,), default=None
            Their labels; None only for rows that were opened with labels.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.
        bags : array-like of shape (n,) or str, default=None
            Identifier of the bag of each row, or the name of their column; all rows of a bag have one label.
        errors : array-like of shape (n, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `fit`.

        Returns
        -------
        estimator
            The estimator, with a new `temperature_` and, with bags, a new `bag_correlation_`.
        """
        check_is_fitted(self)
        with updating(self):
            if bags is not None and errors is not None:
                raise ValueError("bags and errors cannot be combined: predictions of bags take exact values.")
            entered, names = rows_in_bags(self, X, y, sample_weight, bags, errors)
            rows = entered.values(on_cpu=True)
            codes, weights = entered.codes(len(rows)), entered.weights(len(rows))
            self.temperature_ = decisions.best_temperature(densities.log_joint(self, rows), codes, weights)
            note_rows(self, bag_correlation_=learn_correlation(self, entered.X, codes, names, weights))
        return self

    def tune(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        trade_off: float | Sequence[float] | str = "auto",
        validation: float | tuple[ArrayLike, ArrayLike] | None = 0.1,
        max_iter: int | None = None,
        sample_weight: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Tune weights, means and covariances for classification.

        Starting from the fit, it maximises Σ log p(c | x) + λ Σ log p(x, c). The first term measures the
        prediction of labels, with log-probabilities divided by a temperature of 3; the second is the
        likelihood of the rows. The priors of the fit remain, and kernels stay Gaussians above
        `variance_floor`, but the density fits rows less well than before. The posterior of a variational fit
        is removed.

        Held-out rows decide when to stop and which model is best: the one with the least log-loss, at its
        best temperature, among those that make no more errors than the fitted model, or else the fitted one.
        `temperature_` is then that of `calibrate` for these rows, but at least 1. Without held-out rows, the
        last model is kept, and `temperature_` does not change.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows without missing values, usually those of the fit. Files are read whole.
        y : array-like of shape (N,), default=None
            Their labels; None only for rows that were opened with labels.
        trade_off : float, list of float or 'auto', default='auto'
            λ, or several values; each continues from the best model so far, or from the last one if no rows
            are held out. 'auto' is 1, 0.1, 0.01, 0.001 and 0.
        validation : float, tuple or None, default=0.1
            Share of each class to hold out: these rows judge a second model, which is fitted and tuned to the
            other rows; this model is then tuned to all rows for the same number of rounds. Or held-out rows
            and labels, (X, y), that are in neither the fit nor X. Or None to keep the last model; use
            `calibrate` with other rows for its temperature.
        max_iter : int, default=None
            Largest number of steps of L-BFGS for each λ; None is 200, or 20 with more than 10 000 rows.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows.
        random_state : int, RandomState instance or None, default=None
            Source of randomness of the split. None takes that of the estimator.

        Returns
        -------
        estimator
            The estimator, with `tuned_`.

        Raises
        ------
        ValueError
            With several feature sets, t kernels, missing values, or a model that was fitted with errors, and
            if the prior of a class is zero.
        """
        check_is_fitted(self)
        if Settings.of(self).is_robust:
            raise ValueError("tune cannot be combined with t kernels: fit with tail=None.")
        densities.refuse_shifts(self, "tune", "a tuned model")
        if len(self.models_) > 1:
            raise ValueError(
                f"tune cannot be combined with {len(self.models_)} feature sets: it works on one model."
            )
        if getattr(self, "has_errors_", False):
            raise ValueError(
                "tune cannot be combined with errors: it takes values as exact, and this model was fitted to "
                "values with errors."
            )
        with updating(self):
            rows = labelled_rows(self, X, y, sample_weight)
            random = check_random_state(self.random_state if random_state is None else random_state)
            note_rows(self, bag_correlation_=None)
            tune(self, rows, random, trade_off=trade_off, validation=validation, max_iter=max_iter)
        return self
