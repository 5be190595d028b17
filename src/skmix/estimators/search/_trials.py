"""Trials of a search: candidates, their scores, and the progress of the search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ...engine.records import FloatArray
from ..callbacks import Report

Params = dict[str, Any]
"""Settings of a candidate."""

# The stage that compares candidates on some of the rows.
SCREENING = "screening"
# Words for the stages in messages, where their names are not clear.
_WORDS = {"kernels": "comparing settings"}
# Shares of the time limit after which no candidate is tried, and no further member is fitted to all rows.
CHOOSING, FITTING = 0.6, 0.8
# Largest share of a search that has not ended.
_MOST = 0.99


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
        self.report: Report | None = None
        self.measure = ("log-loss", -1.0)
        self._error: ValueError | None = None
        self._began, self._time_limit = time.monotonic(), np.inf if time_limit is None else time_limit
        self.untried: set[str] = set()
        self._planned: dict[str, tuple[int, float]] = {}  # by stage: number of steps, and work of each
        self._stage, self._n_done = "", 0

    def ends(self, share: float) -> float:
        """Return when a share of the time limit has passed, by the clock of `time.monotonic`."""
        return self._began + share * self._time_limit

    def time_is_up(self, share: float) -> bool:
        """Return whether a share of the time limit has passed."""
        return time.monotonic() > self.ends(share)

    def plan(self, stage: str, n_steps: int, work: float) -> None:
        """Plan further steps of a stage, of equal work each, in a unit that all stages share.

        Plan stages in their order; a stage may be planned again once more is known.
        """
        done = self._n_done if stage == self._stage else 0
        self._planned[stage] = done + n_steps, work

    def step(self, stage: str, message: str, n_steps: int = 1) -> None:
        """Report that steps of a stage are done."""
        self._n_done = n_steps + (self._n_done if stage == self._stage else 0)
        self._stage = stage
        if self.report is not None:
            self.report(message, share=self._share())

    def _share(self) -> float:
        """Return the share of work or of time that is done, whichever is larger.

        It is below 1, because the search has not ended.
        """
        passed = (time.monotonic() - self._began) / self._time_limit if self._time_limit else 1.0
        stages = list(self._planned)
        works = [n_steps * work for n_steps, work in self._planned.values()]
        # Stages before the present one are finished, whatever was planned.
        n_ended, (n_steps, work) = stages.index(self._stage), self._planned[self._stage]
        done = sum(works[:n_ended]) + min(self._n_done, n_steps) * work
        return min(max(done / sum(works), passed), _MOST)

    def add(
        self, stage: str, params: Params, evaluate: Callable[[Trial], None], n_steps: int = 1
    ) -> Trial | None:
        """Try a candidate and return its trial, whose score `evaluate` sets; None if time is up.

        It counts as `n_steps` planned steps of the stage.
        """
        trial = self._try(stage, params, evaluate)
        scores = [each.score for each in self.list if each.stage == stage and np.isfinite(each.score)]
        found = f": best {self.worded(max(scores))} after {candidates(len(scores))}" if scores else ""
        self.step(stage, f"{_WORDS.get(stage, stage)}{found}", n_steps)
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
