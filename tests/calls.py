"""The engine's functions of row sources, called with arrays."""

from __future__ import annotations

from typing import Any

from skmix.engine import em
from skmix.engine.model import Options, Parameters, Result
from skmix.engine.refine import prune, shrink
from skmix.engine.sources import open_source


def fit(
    X: Any, classes: Any, starts: Parameters, options: Options, *, row_weights: Any = None, **rest: Any
) -> Result:
    return em.fit(open_source(X, classes, row_weights), starts, options, **rest)


def prune_kernels(
    X: Any, classes: Any, starts: Parameters, options: Options, *, row_weights: Any = None, **rest: Any
) -> Result:
    return prune.prune_kernels(open_source(X, classes, row_weights), starts, options, **rest)


def with_shrinkage(X: Any, classes: Any, starts: Parameters, options: Options, **rest: Any) -> Options:
    return shrink.with_shrinkage(open_source(X, classes), starts, options, **rest)
