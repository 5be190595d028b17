"""Rows wherever they are: the estimators' methods on files, Dask collections and arrays of other libraries.

The methods themselves are written for rows in memory; what stands around them is put there in one place.
"""

from __future__ import annotations

from inspect import getattr_static, isfunction
from typing import Any, TypeVar

from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from ..engine.compute.devices import here
from ..engine.compute.partitions import in_memory, is_collection
from ..io import source_of
from ._collections import by_rows, lazy_whatever_output
from ._devices import THERE, on_devices
from ._scoring_blocks import in_blocks, labels_of
from ._validation import refuse_paths

Estimator = TypeVar("Estimator", bound=type)

# Methods that answer for each row.
_BY_ROW = THERE - {"fit", "transform"}
# Methods that are made of others, or do not look at arrays.
_LEFT_ALONE = {
    "fit_transform",
    "fit_predict",
    "get_feature_names_out",
    "get_metadata_routing",
    "get_params",
    "score",
}


def works_anywhere(cls: Estimator) -> Estimator:
    """Let the public methods of an estimator take rows that are not in memory, or not NumPy's."""
    for name in ("transform", "fit_transform"):
        if hasattr(cls, name):
            setattr(cls, name, lazy_whatever_output(getattr_static(cls, name)))
    for name in dir(cls):
        if name.startswith(("_", "set_")) or name in _LEFT_ALONE:
            continue
        method = getattr_static(cls, name)
        if isfunction(method):
            if name in _BY_ROW:
                method = by_rows(in_blocks(method))
            elif name == "impute":
                method = by_rows(method)
            setattr(cls, name, on_devices(name, method))
        elif hasattr(method, "fn"):
            # scikit-learn's methods that are there under a condition.
            setattr(cls, name, available_if(method.check)(on_devices(name, method.fn)))
    return cls


def accuracy(classifier: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return the share of rows X (n, M) whose label y (n,) is predicted, or of their weight (n,)."""
    source = source_of(X)
    if source is not None:
        if y is not None:
            source = source.labelled(y)
        if not source.has_labels:
            raise ValueError(f"score needs labels of the rows of {source.name}: give y.")
        X, y = source, labels_of(source)
    refuse_paths(X, y=y, sample_weight=sample_weight)
    predicted = classifier.predict(X)
    if is_collection(X):
        predicted, y, sample_weight = in_memory(predicted, y, sample_weight)
    return float(accuracy_score(here(y), here(predicted), sample_weight=here(sample_weight)))
