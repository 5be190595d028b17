"""Choice of the number of kernels and of the covariance type, and the table of what was tried."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state

from ..engine.covariances import STRUCTURES, structure_of
from ..engine.density import class_log_likelihood
from ..engine.model import FloatArray, IntArray, Parameters, Status
from ..engine.refine.prune import living_kernels
from ._criteria import assignment_entropy, n_free_parameters, softened_log_losses
from ._progress import progress_bar
from ._validation import columns_of, observed_rows

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture

# The default candidates reach this far above the number of classes, or to this many kernels, and go on by
# as much again while the largest is the best.
_KERNELS_PER_CLASS = 4
_FEWEST_TO_REACH = 10

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainingRows:
    """Validated rows to learn from.

    Attributes
    ----------
    X : ndarray of shape (N, M)
        Rows.
    classes : ndarray of shape (L,)
        Labels.
    codes : ndarray of shape (N,)
        Class of each row as an index into them, −1 for rows without a label.
    weights : ndarray of shape (N,) or None
        Positive weights of the rows.
    """

    X: np.ndarray
    classes: np.ndarray
    codes: IntArray
    weights: FloatArray | None

    def take(self, index: IntArray) -> TrainingRows:
        """Return some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        return replace(self, X=self.X[index], codes=self.codes[index], weights=weights)

    def columns(self, columns: list[int], group: int | None) -> TrainingRows:
        """Return what is observed of some columns; `group` is their number for error messages."""
        X, codes, weights = observed_rows(self.X, self.codes, self.weights, columns, self.classes, group)
        return replace(self, X=X, codes=codes, weights=weights)

    def split(self, n_folds: int, seed: int) -> list[tuple[IntArray, IntArray]]:
        """Return (training, held-out) rows of stratified folds; rows without a label always train."""
        labelled = np.flatnonzero(self.codes >= 0)
        sizes = np.bincount(self.codes[labelled], minlength=len(self.classes))
        if sizes.min() < n_folds:
            raise ValueError(
                f"Class {self.classes[np.argmin(sizes)]!r} has {sizes.min()} labelled row(s), fewer than "
                f"n_folds={n_folds}: cross-validation needs one in each fold. Use fewer folds, or criterion="
                "'bic' and given feature_groups."
            )
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        others = np.flatnonzero(self.codes < 0)
        return [
            (np.sort(np.concatenate([labelled[training], others])), labelled[held])
            for training, held in folds.split(labelled, self.codes[labelled])
        ]


@dataclass(frozen=True)
class Fitted:
    """The best start of one feature group.

    Attributes
    ----------
    parameters : Parameters
        Without annihilated kernels.
    log_likelihood : float
        Of the rows it was fitted to.
    """

    parameters: Parameters
    log_likelihood: float


@dataclass(frozen=True)
class Choice:
    """What is to be chosen, and how.

    Attributes
    ----------
    n_kernels, covariance_type : bool
        Whether to choose them.
    criterion : {'bic', 'icl', 'cv'}
        What to choose by.
    candidates : sequence of int or None
        Numbers of kernels to try.
    n_folds : int
        Folds of cross-validation.
    prune : bool
        Whether each candidate is pruned.
    """

    n_kernels: bool = True
    covariance_type: bool = False
    criterion: str = "bic"
    candidates: Sequence[int] | None = None
    n_folds: int = 5
    prune: bool = False


def kernel_candidates(given: Sequence[int] | None, n_classes: int, n_rows: int, n_features: int) -> list[int]:
    """Return the numbers of kernels to try, in increasing order.

    By default from the number of classes, since fewer could not tell them apart, in steps of a quarter, as
    far as rows allow.
    """
    if given is not None:
        wrong = [k for k in given if not isinstance(k, Integral) or isinstance(k, bool) or k < 1]
        if wrong or not len(given):
            raise ValueError(
                f"candidates must be numbers of kernels, at least 1, got {wrong[0]!r}."
                if wrong
                else "candidates must hold at least one number of kernels."
            )
        return sorted({int(k) for k in given})
    reach = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * n_classes)
    most = max(1, n_rows // (n_features + 1))
    found = [n_classes]
    while (following := found[-1] + max(1, found[-1] // 4)) <= min(_KERNELS_PER_CLASS * reach, most):
        found.append(following)
    return found


class Selection:
    """Candidates of one model, or of a product of models, tried one after the other.

    Parameters
    ----------
    prototype : SharedKernelMixture
        The settings that are given.
    rows : TrainingRows
        All rows.
    class_prior : ndarray of shape (L,) or None
        Class priors of a classifier: cross-validation then looks at its posteriors, otherwise at densities.
    choice : Choice
        What is to be chosen.
    """

    def __init__(
        self,
        prototype: SharedKernelMixture,
        rows: TrainingRows,
        class_prior: FloatArray | None,
        choice: Choice,
    ) -> None:
        self.choice = choice
        self.rows = rows
        self.class_prior = class_prior
        self.table: list[Row] = []
        seed = prototype.random_state
        if not isinstance(seed, Integral):
            # The same seed for all candidates: they then differ in what is to be chosen alone.
            seed = int(check_random_state(seed).randint(np.iinfo(np.int32).max))
        self.prototype = clone(prototype).set_params(random_state=seed)
        self._folds: list[tuple[IntArray, IntArray]] | None = None

    @property
    def folds(self) -> list[tuple[IntArray, IntArray]]:
        """The folds of cross-validation, the same for all candidates."""
        if self._folds is None:
            self._folds = self.rows.split(self.choice.n_folds, int(self.prototype.random_state))
        return self._folds

    def choose(self, groups: list[list[int]]) -> SharedKernelMixture:
        """Try all candidates on the given feature groups, and return the settings of the best."""
        prototype, n_classes = self.prototype, len(self.rows.classes)
        reach = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * n_classes)
        choice = self.choice
        open_ended = choice.n_kernels and choice.candidates is None
        if choice.n_kernels:
            widest = max(map(len, groups))
            numbers = kernel_candidates(choice.candidates, n_classes, len(self.rows.X), widest)
        else:
            numbers = [int(prototype.n_kernels or n_classes)]
        types = list(STRUCTURES) if choice.covariance_type else [prototype.covariance_type]
        n_sure = len(types) * sum(k <= reach or not open_ended for k in numbers)
        best = None
        with progress_bar("choosing kernels", n_sure, shown=False) as report:
            for n_kernels in numbers:
                for covariance_type in types:
                    settings = clone(prototype).set_params(
                        n_kernels=n_kernels, covariance_type=covariance_type
                    )
                    row = self._try(settings, groups)
                    self.table.append(row)
                    if best is None or row["value"] < best[0]["value"]:
                        best = row, settings
                    report(f"{choice.criterion} {best[0]['value']:.6g}: {best[0]['n_kernels']} kernels")
                assert best is not None
                if open_ended and n_kernels >= reach and best[0]["n_kernels"] < n_kernels:
                    break
        assert best is not None
        if not np.isfinite(best[0]["value"]):
            raise ValueError(
                f"All starts of all candidates ended in a singular covariance, with variance_floor="
                f"{prototype.variance_floor}. Use a larger one (1e-6 by default) or a covariance_prior."
            )
        best[0]["chosen"] = True
        return best[1]

    def _try(self, settings: SharedKernelMixture, groups: list[list[int]]) -> Row:
        """Return the row of the table for one candidate."""
        criterion, n_classes = self.choice.criterion, len(self.rows.classes)
        row = table_row(settings, groups, criterion, n_classes)
        if criterion == "cv":
            total = sum_or_none(self.held_out(settings, columns) for columns in groups)
            return row if total is None else {**row, **self.judge(total)[0]}
        value, log_likelihood, n_parameters = 0.0, 0.0, 0
        for group, columns in enumerate(groups):
            rows = self.rows.columns(columns, group)
            fitted = fit_group(settings, rows, columns, prune=self.choice.prune)
            if fitted is None:
                return row
            n_kernels = len(fitted.parameters.means)
            structure = settings._structure_for(len(columns))
            free = n_free_parameters(structure, n_kernels, len(columns), n_classes)
            n_rows = len(rows.X) if rows.weights is None else rows.weights.sum()
            value += free * np.log(n_rows) - 2.0 * fitted.log_likelihood
            if criterion == "icl":
                n_jobs = effective_n_jobs(settings.n_jobs)
                value += 2.0 * assignment_entropy(
                    rows.X, rows.codes, rows.weights, fitted.parameters, settings.covariance_type, n_jobs
                )
            log_likelihood += fitted.log_likelihood
            n_parameters += free
        return {
            **row,
            "value": float(value),
            "log_likelihood": log_likelihood,
            "n_parameters": n_parameters,
        }

    def held_out(self, settings: SharedKernelMixture, columns: list[int]) -> FloatArray | None:
        """Return log p(x | class j) of every row (N, L), from fits to the folds that it is not in.

        Rows without a label have zeros. None when all starts of a fit failed.
        """
        values = np.zeros((len(self.rows.X), len(self.rows.classes)))
        for training, held in self.folds:
            fitted = fit_group(
                settings,
                self.rows.take(training).columns(columns, None),
                columns,
                prune=self.choice.prune,
            )
            if fitted is None:
                return None
            values[held] = class_log_likelihood(
                columns_of(self.rows.X[held], columns),
                fitted.parameters,
                settings.covariance_type,
                effective_n_jobs(settings.n_jobs),
            )
        return values

    def judge(self, held_out: FloatArray) -> tuple[Row, FloatArray]:
        """Judge held-out class log-likelihoods (N, L).

        Returns
        -------
        entries : dict
            Value, log-likelihood, and of a classifier the accuracy.
        losses : ndarray of shape (n,)
            Of the labelled rows; the value is their mean.
        """
        labelled = np.flatnonzero(self.rows.codes >= 0)
        codes, values = self.rows.codes[labelled], held_out[labelled]
        weights = np.ones(len(codes)) if self.rows.weights is None else self.rows.weights[labelled]
        own = values[np.arange(len(codes)), codes]
        row: Row = {"log_likelihood": float(own @ weights)}
        if self.class_prior is None:
            losses = -own
        else:
            losses = softened_log_losses(values, codes, self.class_prior, weights)
            with np.errstate(divide="ignore"):
                right = np.argmax(values + np.log(self.class_prior), axis=1) == codes
            row["accuracy"] = float(np.average(right, weights=weights))
        return {**row, "value": float(np.average(losses, weights=weights))}, losses


def sum_or_none(arrays: Iterable[FloatArray | None]) -> FloatArray | None:
    """Return the sum of arrays, None when one of them is."""
    total: FloatArray | None = None
    for array in arrays:
        if array is None:
            return None
        total = array if total is None else total + array
    return total


def table_row(settings: SharedKernelMixture, groups: list[list[int]], criterion: str, n_classes: int) -> Row:
    """Return a row of the table for a candidate that has not been fitted yet."""
    n_kernels = int(settings.n_kernels or n_classes)
    free = [n_free_parameters(settings._structure_for(len(c)), n_kernels, len(c), n_classes) for c in groups]
    return {
        "n_kernels": n_kernels,
        "covariance_type": settings.covariance_type,
        "feature_groups": [list(columns) for columns in groups],
        "criterion": criterion,
        "value": np.inf,
        "log_likelihood": -np.inf,
        "n_parameters": sum(free),
        "accuracy": np.nan,
        "chosen": False,
    }


def fit_group(
    settings: SharedKernelMixture, rows: TrainingRows, columns: list[int], *, prune: bool = False
) -> Fitted | None:
    """Fit one feature group, all starts in one batch; None when all of them failed."""
    result, _ = settings._solve(rows.X, rows.classes, rows.codes, rows.weights, columns, prune=prune)
    if np.all(result.status == Status.FAILED):
        return None
    structure = structure_of(settings.covariance_type)
    parameters = living_kernels(result.parameters.take(result.best), structure)
    return Fitted(parameters, float(result.log_likelihood[result.best].sum()))
