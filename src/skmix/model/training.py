"""Training rows: a source of rows for the engine with class codes, and the labels behind these."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ..data import Source
from ..data.blocks import LabelledBlocks, LabelSummary, summarise_labels
from ..data.labels import classes_of, is_column, typed
from ..engine.device.streamed import StreamedRows
from ..engine.records import FloatArray
from ..engine.rows.blocks import BlockRows
from ..engine.rows.source import RowSource
from .checks import check_labelled, note_columns, refuse_empty_features, warn_caller, warn_of_empty_rows
from .devices import warn_of_host


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


def warn_of_ungrouped(estimator: Any, training: Training) -> None:
    """Warn if some rows of files that a mixture is fitted to have no group."""
    if isinstance(training.blocks, Source) and training.n_unlabelled and not is_classifier(estimator):
        warn_caller(
            f"{training.n_unlabelled} of {training.source.summary.n_rows} rows of {training.blocks.name} "
            "have no group: they affect the kernels, but not the weights of any group. Leave them out if "
            "that is not intended."
        )


def training_in_blocks(
    estimator: Any,
    blocks: LabelledBlocks,
    y: Any,
    device: str | None,
    least: int,
    *,
    name: str = "y",
    table: str | None = None,
) -> Training:
    """Summarise all blocks in one pass, note their features in the estimator, and return them.

    `y` are the labels as the user gave them, which messages call `name`, and `table` is the file's name.
    """
    labelled, seed = _summarise(estimator, blocks, device, least)
    advice = "these rows have no labels. Give y, or open a file by open_rows with label=."
    check_labelled(estimator, labelled.labels, advice)
    classes = np.zeros(1, dtype=np.int64)
    if labelled.labels is not None:
        n_rows, missing = labelled.summary.n_rows, labelled.summary.n_unlabelled > 0
        classes = classes_of(labelled.labels, n_rows, missing=missing, name=name, table=table)
        classes = typed(classes) if is_column(y) else classes
        # Unique labels look like regression targets.
        check_classification_targets(np.repeat(classes, 2))
    note_columns(estimator, blocks.n_features, blocks.feature_names, blocks.preparation)
    return _coded(blocks, labelled, classes, classes, seed, device)


def training_by_pieces(
    estimator: Any, blocks: LabelledBlocks, classes: np.ndarray, device: str, least: int = 2
) -> Training:
    """Rows in memory that a device has no room for; their labels are indices into the classes (L,)."""
    labelled, seed = _summarise(estimator, blocks, device, least)
    return _coded(blocks, labelled, np.arange(len(classes)), classes, seed, device)


def _coded(
    blocks: LabelledBlocks,
    labelled: LabelSummary,
    labels: np.ndarray,
    classes: np.ndarray,
    seed: int,
    device: str | None,
) -> Training:
    """Rows in blocks with class codes; `labels` (L,) in the blocks stand for the classes (L,)."""
    coded, summary = blocks.coded(labels), labelled.coded(labels)
    if device is not None and summary.gaps:
        warn_of_host("Missing values", device)
        device = None
    source = BlockRows(coded, summary, seed) if device is None else StreamedRows(coded, device, summary, seed)
    return Training(source, classes, coded)


def _summarise(
    estimator: Any, blocks: LabelledBlocks, device: str | None, least: int
) -> tuple[LabelSummary, int]:
    """The summary of training blocks, and the seed of its sample of rows."""
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    labelled = summarise_labels(blocks, seed, device)
    summary = labelled.summary
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
    return labelled, seed


def _first_empty_row(blocks: LabelledBlocks) -> str:
    """Where the first row without any value is, as its file counts rows."""
    if not isinstance(blocks, Source):
        return "in one of the blocks"
    start = 0
    with closing(blocks.blocks()) as parts:
        for part in parts:
            is_empty = np.isnan(part.X).all(axis=1) & (part.row_weights > 0.0)
            if is_empty.any():
                return blocks.place(start + int(is_empty.argmax()))
            start += len(part.X)
    raise LookupError("no row is without values")
