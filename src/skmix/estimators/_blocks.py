"""The estimators on rows in blocks: what `fit` does when the rows are not all in memory.

One look at all blocks gives labels, frame and a sample. Starts are made from the sample by the functions that
make them from rows; the engine then passes over the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ..engine.compute.blocks import Block, Blocks, is_blocks
from ..engine.model import FloatArray
from ..engine.sources.blocks import BlockRows, summarise_blocks
from ..engine.sources.summary import Summary
from ..io import source_of
from ._checkpoint import checkpoint_of
from ._collections import collection_blocks
from ._decisions import check_outlier_label
from ._validation import number_labels, refuse_paths

if TYPE_CHECKING:
    from .classifier import SharedKernelClassifier
    from .mixture import SharedKernelMixture

# Bits of a density that one pass settles when a quantile is looked for: a histogram of that many counts.
_DIGIT = 16


def blocks_of(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Blocks | None:
    """Return training rows that come in blocks; None for rows in memory."""
    source = source_of(X)
    if source is not None:
        if y is not None:
            source = source.labelled(y)
        return source if sample_weight is None else source.weighted(sample_weight)
    if is_blocks(X):
        if y is not None or sample_weight is not None:
            raise ValueError("Blocks of rows hold their labels and weights: leave y and sample_weight out.")
        return X
    refuse_paths(X, y=y, sample_weight=sample_weight)
    return collection_blocks(X, y, sample_weight)


def fit_mixture(mixture: SharedKernelMixture, blocks: Blocks, *, prune: bool) -> SharedKernelMixture:
    """Fit a mixture, of one class when the blocks have no labels."""
    rows, classes = _look(mixture, blocks)
    _fit_model(mixture, rows, classes, prune=prune)
    return mixture


def fit_classifier(
    classifier: SharedKernelClassifier, blocks: Blocks, *, prune: bool
) -> SharedKernelClassifier:
    """Fit a classifier: a model of each feature group."""
    rows, classes = _look(classifier, blocks)
    if rows.summary.labels is None:
        raise ValueError("A classifier requires y to be passed, but these rows have no labels.")
    if classifier.reject_below is not None:
        check_outlier_label(classifier.outlier_label, classes)
    groups = classifier._groups(blocks.n_features)
    unlabelled = bool(np.any(rows.summary.labels < 0))
    if len(groups) > 1 and unlabelled:
        raise ValueError(
            f"{int(rows.summary.n_labelled[0])} rows have no label, and with several feature groups these "
            "need all rows in memory. Leave them out, or fit one group."
        )
    models = [classifier._model(g, groups) for g in range(len(groups))]
    for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
        model.n_features_in_ = len(columns)
        own = rows if columns == list(range(blocks.n_features)) else rows.take(columns)
        _check_group(own.summary, classes, columns, group)
        _fit_model(model, own, classes, columns, prune=prune)
    sizes = _class_sizes(rows.summary, len(classes))
    classifier._keep(models, groups, classes, sizes, not unlabelled)
    if classifier.reject_below is not None:
        classifier.threshold_ = density_quantile(classifier, rows.blocks, classifier.reject_below)
    return classifier


def _look(estimator: Any, blocks: Blocks) -> tuple[BlockRows, np.ndarray]:
    """Return coded blocks with their survey, and the sorted labels (L,); note the features."""
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    found = summarise_blocks(blocks, seed)
    if found.n_empty:
        raise ValueError(
            f"{found.n_empty} rows of X have no value: all {blocks.n_features} features are NaN. "
            "Remove rows that say nothing."
        )
    if found.n_rows < 2:
        raise ValueError(f"Found {found.n_rows} row(s) with a weight, but at least 2 are required.")
    empty = np.flatnonzero(found.moments.count == 0)
    if len(empty):
        raise ValueError(
            f"Feature {empty[0]} of X has no value: it is NaN in all {found.n_rows} rows "
            f"({len(empty)} such features). Remove features that were never observed."
        )
    classes = np.zeros(1, dtype=np.int64)
    if found.labels is not None:
        check_classification_targets(found.labels)
        if found.labels.dtype.kind in "if" and found.labels.tolist() == [-1]:
            raise ValueError(f"All {found.n_rows} rows are unlabelled (y is -1 everywhere).")
        classes = number_labels(found.labels)[0]
    estimator.n_features_in_ = blocks.n_features
    estimator.__dict__.pop("feature_names_in_", None)
    if blocks.feature_names is not None:
        estimator.feature_names_in_ = np.array(blocks.feature_names, dtype=object)
    return BlockRows(blocks, found, seed).coded(classes), classes


def _check_group(found: Summary, classes: np.ndarray, columns: list[int], group: int) -> None:
    """Refuse a feature group without any value of some feature or class."""
    empty = np.flatnonzero(found.moments.count == 0)
    if len(empty):
        raise ValueError(f"Feature {columns[empty[0]]} of X has no value: it is NaN in all rows.")
    absent = np.flatnonzero(_class_sizes(found, len(classes)) == 0)
    if len(absent):
        raise ValueError(
            f"No row of class {classes[absent[0]]!r} has a value in feature group {group}, columns {columns}."
        )


def _class_sizes(found: Summary, n_classes: int) -> FloatArray:
    """Return the number (L,) of labelled rows of each class, or the sum of their weights."""
    # Rows without a label are put behind the classes.
    return found.by_class(found.sizes, n_classes + 1)[:n_classes]


def _fit_model(
    model: SharedKernelMixture,
    rows: BlockRows,
    classes: np.ndarray,
    columns: list[int] | None = None,
    *,
    prune: bool,
) -> None:
    """Fit a mixture to coded blocks; `columns` are for error messages."""
    structure = model._structure_for(rows.n_features)
    options = model._options(rows.n_features)
    frame = rows.summary.frame(structure, columns)
    sizes = _class_sizes(rows.summary, len(classes))
    prior = sizes / sizes.sum()
    X, codes, weights = rows.start_rows()
    starts = partial(model._starts, X, codes, classes, prior, frame, structure, options, weights)
    checkpoint = None if prune else checkpoint_of(model, frame, classes, sizes)
    found = rows.summary
    total = float(found.sizes.sum())
    result = model._run(
        rows, None, None, starts, options, frame, checkpoint, found.n_rows, total, prune=prune
    )
    model._accept(result, prior, classes, prune=prune)
    model.class_count_ = sizes
    model.__dict__.pop("stream_", None)


@dataclass(frozen=True)
class CountDensities:
    """Counts the log-densities of a block's rows by their next digit, in an order-preserving code.

    Attributes
    ----------
    classifier : SharedKernelClassifier
        The fitted classifier.
    prefix : int
        Leading digits that are known.
    n_known : int
        Number of bits they have.
    """

    classifier: Any
    prefix: int
    n_known: int

    def __call__(self, block: Block) -> FloatArray:
        """Return the weight of the rows (2^digit,) that have the prefix, by their next digit."""
        block = replace(block, y=None).informative()
        counts = np.zeros(1 << _DIGIT)
        if not len(block.X):
            return counts
        codes = ordered(logsumexp(self.classifier._joint_of_rows(block.X), axis=1))
        weights = np.ones(len(codes)) if block.weights is None else block.weights
        if self.n_known:
            own = codes >> np.uint64(64 - self.n_known) == np.uint64(self.prefix)
            codes, weights = codes[own], weights[own]
        digits = (codes >> np.uint64(64 - self.n_known - _DIGIT)) & np.uint64((1 << _DIGIT) - 1)
        counts += np.bincount(digits.astype(np.int64), weights=weights, minlength=1 << _DIGIT)
        return counts


def density_quantile(classifier: SharedKernelClassifier, blocks: Blocks, quantile: float) -> float:
    """Return the smallest log-density up to which that share of the rows, or of their weight, lies.

    It is found digit by digit, in four passes and without an array of all densities.
    """
    prefix, below, wanted = 0, 0.0, 0.0
    for n_known in range(0, 64, _DIGIT):
        counts = blocks.reduce(CountDensities(classifier, prefix, n_known), np.add)
        if not n_known:
            wanted = quantile * counts.sum()
        reached = below + np.cumsum(counts)
        # Rounding of weights may leave the last sum a little short of what is wanted.
        digit = min(int(np.searchsorted(reached, wanted)), int(np.flatnonzero(counts)[-1]))
        below = float(reached[digit] - counts[digit])
        prefix = (prefix << _DIGIT) | digit
    return float(disordered(np.array([prefix], dtype=np.uint64))[0])


def ordered(values: FloatArray) -> np.ndarray:
    """Return unsigned integers (n,) in the same order as the numbers (n,)."""
    bits = values.astype(np.float64).view(np.uint64)
    sign = np.uint64(1 << 63)
    codes: np.ndarray = np.where(bits & sign, ~bits, bits | sign)
    return codes


def disordered(codes: np.ndarray) -> FloatArray:
    """Return the numbers behind what `ordered` made of them."""
    sign = np.uint64(1 << 63)
    numbers: FloatArray = np.where(codes & sign, codes & ~sign, ~codes).view(np.float64)
    return numbers
