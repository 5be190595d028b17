"""Trials of a search: candidates, their scores, and the progress of the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ...engine.model import FloatArray
from ..callbacks import Report

Params = dict[str, Any]
"""Settings of a candidate."""

# The stage that compares candidates on some of the rows.
SCREENING = "screening"
# Words for the stages in messages, where their names are not clear.
_WORDS = {"kernels": "comparing settings"}
# Shares of the time limit after which no candidate is tried, and no further member is fitted to all rows.
CHOOSING, FITTING = 0.6, 0.8


def candidates(number: int) -> str:
    """Return a number of candidates in words."""
    return "1 candidate" if number == 1 else f"{number} candidates"


@dataclass(eq=False)
class Trial:
    """A candidate and its score (larger is better); `columns` are further columns of the table."""

    stage: str
    params: Params
    score: float = -np.inf
    split_scores: list[float] = field(default_factory=list)
    columns: dict[str, float] = field(default_factory=dict)
    models: list[Any] = field(default_factory=list)
    probabilities: FloatArray | None = None  # (n, L): of the classes, for held-out rows


class Trials:
    """Trials in order; a candidate is tried once per stage, and none after a share of the time limit.

    `best` is the best trial so far, except those of the screening. The `n_kept` best trials keep their fitted
    models. `choosing` is the share of the time limit after which no candidate is tried; `untried` are those
    left out. `measure` is the name of the scores in messages, and the factor that makes one of them.
    """

    def __init__(self, time_limit: float | None) -> None:
        self.list: list[Trial] = []
        self.best = Trial("", {})
        self.n_kept = 1
        self.choosing = CHOOSING
        self.report: Report = lambda message: None
        self.measure = ("log-loss", -1.0)
        self._error: ValueError | None = None
        self._began, self._time_limit = time.monotonic(), np.inf if time_limit is None else time_limit
        self.untried: set[str] = set()

    def ends(self, share: float) -> float:
        """Return when a share of the time limit has passed, by the clock of `time.monotonic`."""
        return self._began + share * self._time_limit

    def time_is_up(self, share: float) -> bool:
        """Return whether a share of the time limit has passed."""
        return time.monotonic() > self.ends(share)

    def add(self, stage: str, params: Params, evaluate: Callable[[Trial], None]) -> Trial | None:
        """Try a candidate and return its trial, whose score `evaluate` sets; None if time is up."""
        trial = self._try(stage, params, evaluate)
        scores = [each.score for each in self.list if each.stage == stage and np.isfinite(each.score)]
        found = f": best {self.worded(max(scores))} after {candidates(len(scores))}" if scores else ""
        self.report(f"{_WORDS.get(stage, stage)}{found}")
        return trial

    def worded(self, score: float) -> str:
        """Return a score in words."""
        name, factor = self.measure
        return f"{name} {factor * score:.4g}"

    def _try(self, stage: str, params: Params, evaluate: Callable[[Trial], None]) -> Trial | None:
        screening = stage == SCREENING
        for trial in self.list:
            if trial.params == params and (trial.stage == SCREENING) == screening:
                return trial
        trial = Trial(stage, params)
        if not (self.list and self.time_is_up(self.choosing)):
            try:
                evaluate(trial)
            except ValueError as error:
                self._error = error
        if self.list and self.time_is_up(self.choosing):
            # Fits that were begun may have ended too early.
            if not any(other.params == params for other in self.list):
                self.untried.add(repr(params))
            return None
        self.list.append(trial)
        if trial.stage == SCREENING:
            trial.models, trial.probabilities = [], None
        else:
            if trial.score > self.best.score or np.isnan(self.best.score) or not self.best.params:
                self.best = trial
            fitted = sorted((each for each in self.list if each.models), key=lambda each: -each.score)
            for other in fitted[self.n_kept :]:
                other.models = []
        return trial

    def check(self) -> None:
        """Raise ValueError if no candidate could be fitted.

        If time was up before any candidate was compared on all folds, the best of the screening is the best.
        """
        if not self.best.params:
            self.best = max(self.list, key=lambda trial: trial.score)
        if self._error is not None and not np.isfinite(self.best.score):
            raise ValueError(f"No candidate could be fitted: {self._error}")

    def table(self) -> dict[str, Any]:
        """Return `cv_results_`: arrays with one entry per trial."""
        rows: list[dict[str, Any]] = [
            {
                "stage": trial.stage,
                **{f"param_{name}": value for name, value in trial.params.items()},
                **{f"split{i}_test_score": score for i, score in enumerate(trial.split_scores)},
                "mean_test_score": trial.score,
                "std_test_score": np.std(trial.split_scores) if trial.split_scores else np.nan,
                **trial.columns,
            }
            for trial in self.list
        ]
        table: dict[str, Any] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            absent = None if name.startswith("param_") else np.nan
            column = np.empty(len(rows), dtype=object)
            column[:] = [row.get(name, absent) for row in rows]
            whole = any(value is None or isinstance(value, (list, tuple)) for value in column)
            table[name] = column if whole else np.array(column.tolist())
        # Scores of the screening are of one or two folds, and rank below all others.
        losses = np.nan_to_num(-table["mean_test_score"], nan=np.inf)
        ranks, screened = np.empty(len(rows), dtype=np.int32), table["stage"] == SCREENING
        ranks[~screened] = rankdata(losses[~screened], method="min")
        ranks[screened] = rankdata(losses[screened], method="min") + np.count_nonzero(~screened)
        table["rank_test_score"] = ranks
        table["params"] = [trial.params for trial in self.list]
        return table
