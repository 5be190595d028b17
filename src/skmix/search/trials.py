"""Trials of a search: candidates, their scores, the time limit, and the progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ..engine.records import FloatArray
from ..model.callbacks import Report

Params = dict[str, Any]
"""Settings of a candidate."""

# The stage that compares candidates on some of the rows.
SCREENING = "screening"
# Words for the stages in messages, where their names are not clear.
_WORDS = {"kernels": "comparing settings"}
# Shares of the time limit after which no candidate is tried, and no further member is fitted to all rows.
CHOOSING, FITTING = 0.6, 0.8
# Largest share of the work of a search that has not ended.
_MOST = 0.99


def count_candidates(number: int) -> str:
    """Say a number of candidates."""
    return "1 candidate" if number == 1 else f"{number} candidates"


@dataclass(eq=False)
class Trial:
    """A candidate and its score, where larger is better."""

    stage: str
    params: Params
    score: float = -np.inf
    split_scores: list[float] = field(default_factory=list)  # of the folds
    columns: dict[str, float] = field(default_factory=dict)  # further columns of the table
    models: list[Any] = field(default_factory=list)  # fitted to the folds, as long as they may be needed
    losses: FloatArray | None = None  # (n,): minus log-probabilities of held-out rows

    @property
    def is_screened(self) -> bool:
        """Whether the score is of some of the rows only."""
        return self.stage == SCREENING


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
        self.untried: set[str] = set()
        self.report: Report | None = None
        self.measure = ("log-loss", -1.0)
        self._error: ValueError | None = None
        self._began, self._limit = time.monotonic(), np.inf if time_limit is None else time_limit
        self._done, self._until, self._per_step = 0.0, 0.0, 0.0

    # ------------------------------------------------------------ time and progress

    def ends(self, share: float) -> float:
        """Return when a share of the time limit has passed, by the clock of `time.monotonic`."""
        return self._began + share * self._limit

    def time_is_up(self, share: float) -> bool:
        """Return whether a share of the time limit has passed."""
        return time.monotonic() > self.ends(share)

    def begin(self, n_steps: float, until: float) -> None:
        """Begin a stage of about `n_steps` steps, at whose end a share of the search is done."""
        self._done = max(self._done, self._until)
        self._until, self._per_step = until, (until - self._done) / max(n_steps, 1.0)

    def step(self, message: str, n_steps: float = 1.0) -> None:
        """Report that steps of the stage are done."""
        self._done = min(self._done + n_steps * self._per_step, self._until)
        if self.report is not None:
            passed = (time.monotonic() - self._began) / self._limit if self._limit else 1.0
            self.report(message, share=min(max(self._done, passed), _MOST))

    def say(self, score: float) -> str:
        """Say a score."""
        name, factor = self.measure
        return f"{name} {factor * score:.4g}"

    # ------------------------------------------------------------ candidates

    def add(
        self, stage: str, params: Params, evaluate: Callable[[Trial], None], n_steps: float = 1.0
    ) -> Trial | None:
        """Try a candidate and return its trial, whose score `evaluate` sets; None if time is up."""
        trial = self._try(stage, params, evaluate)
        scores = [other.score for other in self.list if other.stage == stage and np.isfinite(other.score)]
        best = f": best {self.say(max(scores))} after {count_candidates(len(scores))}" if scores else ""
        self.step(f"{_WORDS.get(stage, stage)}{best}", n_steps)
        return trial

    def _try(self, stage: str, params: Params, evaluate: Callable[[Trial], None]) -> Trial | None:
        for trial in self.list:
            if trial.params == params and trial.is_screened == (stage == SCREENING):
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
        if trial.is_screened:
            trial.models, trial.losses = [], None
            return trial
        if trial.score > self.best.score or np.isnan(self.best.score) or not self.best.params:
            self.best = trial
        for other in self.fitted()[self.n_kept :]:
            other.models = []
        return trial

    def fitted(self) -> list[Trial]:
        """Return the trials that keep their models, the best first."""
        return sorted((trial for trial in self.list if trial.models), key=lambda trial: -trial.score)

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
            is_mixed = any(value is None or isinstance(value, (list, tuple)) for value in column)
            table[name] = column if is_mixed else np.array(column.tolist())
        # Scores of the screening rank below all others.
        losses = np.nan_to_num(-table["mean_test_score"], nan=np.inf)
        ranks, screened = np.empty(len(rows), dtype=np.int32), table["stage"] == SCREENING
        ranks[~screened] = rankdata(losses[~screened], method="min")
        ranks[screened] = rankdata(losses[screened], method="min") + np.count_nonzero(~screened)
        table["rank_test_score"] = ranks
        table["params"] = [trial.params for trial in self.list]
        return table
