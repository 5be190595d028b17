"""Training rows: a source of rows for the engine with class codes, and the labels behind these."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ..data import Source
from ..data.blocks import LabelledBlocks, summarise_labels
from ..data.labels import classes_of, is_column, typed
from ..engine.device.streamed import StreamedRows
from ..engine.measured import values_of
from ..engine.numbers import Array, pick, to_numpy
from ..engine.records import FloatArray, Frame, IntArray
from ..engine.rows.blocks import BlockRows
from ..engine.rows.resolution import resolution_of
from ..engine.rows.source import RowSource
from ..engine.rows.summary import Summary
from ..engine.structures import structure_of
from .checks import check_labelled, note_columns, refuse_empty_features, warn_caller, warn_of_empty_rows
from .devices import warn_of_host

# Largest number of rows from which to estimate the resolution and the mild prior.
_SOME_ROWS = 1 << 12


@dataclass(frozen=True)
class Training:
    """Validated training rows, in memory or elsewhere."""

    source: RowSource
    classes: np.ndarray  # (L,): the labels behind the class codes
    blocks: LabelledBlocks | None = None  # rows that are not in memory

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.source.n_features

    @property
    def sizes(self) -> FloatArray:
        """Number (L,) of labelled rows in each class, or the sum of their weights."""
        return self.source.summary.class_sizes(len(self.classes))

    @property
    def class_prior(self) -> FloatArray:
        """Share (L,) of each class among the labelled rows."""
        return self.sizes / self.sizes.sum()

    @property
    def n_unlabelled(self) -> int:
        """Number of rows without a label."""
        return self.source.summary.n_unlabelled

    @cached_property
    def resolution(self) -> FloatArray:
        """Smallest variance (M,) that each feature resolves; a search fits many candidates to these rows."""
        rows, _, weights = self.source.start_rows()
        return resolution_of_rows(values_of(rows), weights, self.source.summary.frame(structure_of("full")))

    def with_features(self, columns: list[int], number: int) -> Training:
        """The columns of feature set `number`, and the rows that have a value in them.

        Raise ValueError if a class has no such row.
        """
        if columns == list(range(self.n_features)):
            return self
        chosen = replace(self, source=self.source.with_features(columns))
        absent = np.flatnonzero(chosen.sizes == 0)
        if len(absent):
            raise ValueError(
                f"No row of class {self.classes[absent[0]]!r} has a value in feature set {number}, columns "
                f"{columns}."
            )
        return chosen

    def warn_of_ungrouped(self, estimator: Any) -> None:
        """Warn if some rows of files that a mixture is fitted to have no group."""
        if isinstance(self.blocks, Source) and self.n_unlabelled and not is_classifier(estimator):
            warn_caller(
                f"{self.n_unlabelled} of {self.source.summary.n_rows} rows of {self.blocks.name} have no "
                "group: they affect the kernels, but not the weights of any group. Leave them out if that is "
                "not intended."
            )


def refuse_unlabelled(n_rows: int, n_sets: int) -> None:
    """Raise ValueError for unlabelled rows with several feature sets."""
    if n_rows and n_sets > 1:
        raise ValueError(
            f"{n_rows} rows without a label cannot be combined with {n_sets} feature sets: the class of such "
            "a row depends on all sets. Leave these rows out, or fit one set."
        )


def some_rows(n_rows: int, weights: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Some rows, evenly spaced by weight, and how often each is drawn if rows have weights (n,)."""
    if n_rows <= _SOME_ROWS:
        return np.arange(n_rows), weights
    # Weights that are all equal draw the same rows as no weights.
    places = (np.arange(_SOME_ROWS) + 0.5) / _SOME_ROWS
    if weights is None:
        return np.ceil(places * float(n_rows)).astype(np.int64) - 1, None
    ends = np.cumsum(weights)
    some, counts = np.unique(np.searchsorted(ends, places * ends[-1]), return_counts=True)
    return some, counts.astype(np.float64)


def resolution_of_rows(X: Array, weights: FloatArray | None, frame: Frame) -> FloatArray:
    """Smallest variance (M,) that some of the rows X (n, M) with weights (n,) resolve."""
    some, masses = some_rows(X.shape[0], weights)
    return resolution_of(to_numpy(pick(X, some)).astype(np.float64), masses, frame)


# ---------------------------------------------------------------- rows in blocks


def training_in_blocks(
    rows: Any, blocks: LabelledBlocks, device: str | None, least: int = 2, classes: np.ndarray | None = None
) -> Training:
    """Summarise all blocks of `Rows` in one pass, note their features in the estimator, and return them.

    With `classes` (L,), the labels of the blocks are codes, and the features were noted before.
    """
    seed = int(check_random_state(rows.estimator.random_state).randint(np.iinfo(np.int32).max))
    labelled = summarise_labels(blocks, seed, device)
    _check_summary(blocks, labelled.summary, least)
    if classes is None:
        advice = "these rows have no labels. Give y, or open a file by open_rows with label=."
        check_labelled(rows.estimator, labelled.labels, advice)
        labels = classes = np.zeros(1, dtype=np.int64)
        if labelled.labels is not None:
            n_rows, missing = labelled.summary.n_rows, labelled.summary.n_unlabelled > 0
            classes = classes_of(labelled.labels, n_rows, missing=missing, name=rows.name, table=rows.table)
            labels = classes = typed(classes) if is_column(rows.y) else classes
            # Unique labels look like regression targets.
            check_classification_targets(np.repeat(classes, 2))
        note_columns(rows.estimator, blocks.n_features, blocks.feature_names, blocks.preparation)
        rows.table_columns.note_in(rows.estimator)
    else:
        labels = np.arange(len(classes))
    coded, summary = blocks.coded(labels), labelled.coded(labels)
    if device is not None and summary.gaps:
        warn_of_host("Missing values", device)
        device = None
    source = BlockRows(coded, summary, seed) if device is None else StreamedRows(coded, device, summary, seed)
    return Training(source, classes, coded)


def _check_summary(blocks: LabelledBlocks, summary: Summary, least: int) -> None:
    """Refuse too few rows and features without any value, and warn of rows without any value."""
    if not summary.n_rows and summary.n_empty:
        raise ValueError(
            f"All {summary.n_empty} rows of {blocks.name} have no value: their {blocks.n_features} features "
            "are NaN."
        )
    if summary.n_rows < least:
        raise ValueError(f"Found {summary.n_rows} row(s) with a weight, but at least {least} are required.")
    refuse_empty_features(summary.moments.count == 0, summary.n_rows, blocks.feature_names)
    if summary.n_empty:
        n_rows = summary.n_rows + summary.n_empty
        warn_of_empty_rows(summary.n_empty, n_rows, blocks.name, _first_empty_row(blocks))


def _first_empty_row(blocks: LabelledBlocks) -> str:
    """Where the first row without any value is, as its file counts rows."""
    start = 0
    if isinstance(blocks, Source):
        with closing(blocks.blocks()) as parts:
            for part in parts:
                is_empty = np.isnan(part.X).all(axis=1) & (part.row_weights > 0.0)
                if is_empty.any():
                    return blocks.place(start + int(is_empty.argmax()))
                start += len(part.X)
    return "in one of the blocks"
