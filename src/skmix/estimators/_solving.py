"""From settings and validated rows to a fitted batch of starts: what a mixture asks of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.compute.arrays import pick
from ..engine.compute.blocks import Blocks
from ..engine.covariances import Structure, most_factors, structure_of
from ..engine.model import FloatArray, IntArray, Options, Parameters, Result
from ..engine.refine.prune import prune_kernels
from ..engine.refine.shrink import share_of, with_shrinkage
from ..engine.sources import open_source
from ..engine.sources.gaps import has_gaps
from ..engine.sources.summary import Frame, fill_gaps, measure
from ._checkpoint import Checkpoint, checkpoint_of, keeping
from ._compat import fit
from ._devices import device_and_precision
from ._progress import passes_shown
from ._settings import check_covariance_prior, check_start, shrinks
from ._validation import (
    class_sizes,
)


def _given(init: Mapping[str, Any]) -> set[str]:
    """Return what of a model a start gives."""
    given = {"weights"} if init.get("weights") is not None else set()
    return given | ({"kernels"} if init.get("covariances") is not None else set())


class Solving:
    """How a mixture runs its starts."""

    if TYPE_CHECKING:
        n_kernels: int | None
        n_features_in_: int
        covariance_type: str
        n_factors: int | None
        init: Any
        n_init: int
        max_iter: int
        tol: float
        stopping: str
        variance_floor: float
        device: str | None
        covariance_prior: Any
        weight_prior: float | None
        inference: str
        accelerate: bool
        freeze: str | None
        n_jobs: int | None
        random_state: Any
        warm_start: bool
        covariance_type_: str
        classes_: np.ndarray
        means_: FloatArray
        covariances_: FloatArray

        @property
        def _parameters(self) -> Parameters: ...

    def _solve(
        self,
        X: np.ndarray,
        classes: np.ndarray,
        codes: IntArray,
        row_weights: FloatArray | None,
        columns: list[int] | None,
        *,
        prune: bool = False,
    ) -> tuple[Result, FloatArray]:
        """Run all starts; return how they ended, and the share (L,) of each class among labelled rows."""
        structure = self._structure_for(X.shape[1])
        options = self._options(X.shape[1])
        frame = measure(X, structure, columns, row_weights)
        sizes = class_sizes(codes, row_weights, len(classes))
        prior = sizes / sizes.sum()
        starts = partial(self._starts, X, codes, classes, prior, frame, structure, options, row_weights)
        checkpoint = None if prune else checkpoint_of(self, frame, classes, sizes)
        total = float(X.shape[0] if row_weights is None else row_weights.sum())
        result = self._run(
            X, codes, row_weights, starts, options, frame, checkpoint, X.shape[0], total, prune=prune
        )
        return result, prior

    def _run(
        self,
        X: np.ndarray | Blocks,
        codes: IntArray | None,
        row_weights: FloatArray | None,
        make_starts: Callable[[], Parameters],
        options: Options,
        frame: Frame,
        checkpoint: Checkpoint | None,
        n_rows: int,
        total: float,
        *,
        prune: bool = False,
    ) -> Result:
        """Run all starts, or go on with those of a checkpoint.

        The number of rows and their total weight say whether kernels have few of them.
        """
        resume = None if checkpoint is None else checkpoint.read()
        if resume is None:
            given = make_starts()
        else:
            given = frame.leave(resume.parameters, structure_of(options.covariance_type))
        for name in ("shrinkage_", "covariance_prior_"):
            self.__dict__.pop(name, None)
        n_kernels, n_features = given.means.shape[1:]
        # Weights that sum to one are no reason to think that there is one row.
        wanted = structure_of(options.covariance_type).of(given.covariances).rows_wanted(n_features)
        if not prune and shrinks(self, max(total, n_rows) / n_kernels, wanted):
            if resume is None:
                source = open_source(X, codes, row_weights)
                options = with_shrinkage(source, given, options, frame=frame)
            elif checkpoint is not None and checkpoint.prior is not None:
                options = replace(
                    options,
                    covariance_prior=checkpoint.prior[0],
                    covariance_prior_scale=checkpoint.prior[1],
                )
            if options.covariance_prior is not None and options.covariance_prior_scale is not None:
                self.covariance_prior_ = options.covariance_prior, options.covariance_prior_scale
                if checkpoint is not None:
                    checkpoint.prior = self.covariance_prior_
                self.shrinkage_ = share_of(options.covariance_prior, total / n_kernels)
        with keeping(checkpoint), passes_shown(self, total) as progress:
            if prune:
                return prune_kernels(open_source(X, codes, row_weights), given, options, frame=frame)
            return fit(
                X,
                codes,
                given,
                options,
                frame=frame,
                row_weights=row_weights,
                progress=progress,
                keep=checkpoint,
                resume=resume,
            )

    def _structure_for(self, n_features: int) -> Structure:
        """Return the structure of covariances to fit to that many features."""
        n_factors = None if self.n_factors is None else min(self.n_factors, most_factors(n_features))
        return structure_of(self.covariance_type, n_factors)

    def _fitted_options(self) -> Options:
        """Return what the engine wants to know of the fitted model: what was chosen is now said."""
        options = replace(self._options(self.n_features_in_), covariance_type=self.covariance_type_)
        if hasattr(self, "covariance_prior_"):
            rows, scale = self.covariance_prior_
            options = replace(options, covariance_prior=rows, covariance_prior_scale=scale)
        return options

    def _options(self, n_features: int) -> Options:
        """Return what the engine wants to know."""
        rows, scale = check_covariance_prior(self.covariance_prior, n_features)
        return Options(
            covariance_type=self.covariance_type,
            max_iter=self.max_iter,
            tol=self.tol,
            stopping=self.stopping,  # type: ignore[arg-type]
            floor=self.variance_floor,
            covariance_prior=rows,
            covariance_prior_scale=scale,
            weight_prior=self.weight_prior,
            n_jobs=effective_n_jobs(self.n_jobs),
            accelerate=self.accelerate,
            freeze=self.freeze,  # type: ignore[arg-type]
            precision=device_and_precision(self.device)[1],  # type: ignore[arg-type]
            inference=self.inference,  # type: ignore[arg-type]
        )

    def _starts(
        self,
        X: np.ndarray,
        codes: IntArray,
        classes: np.ndarray,
        class_prior: FloatArray,
        frame: Frame,
        structure: Structure,
        options: Options,
        row_weights: FloatArray | None,
    ) -> Parameters:
        """Return the starting points, with a leading axis of their number."""
        n_classes, n_features = len(classes), X.shape[1]
        n_kernels = None if self.n_kernels is None else int(self.n_kernels)
        # Only rows without a label need to know how frequent the classes are.
        prior = None if np.all(codes >= 0) else class_prior
        if self.warm_start and hasattr(self, "weights_"):
            last = (self.covariance_type_, self.classes_.tolist(), self.means_.shape)
            expected = self.means_.shape[0] if n_kernels is None else n_kernels
            same_shape = self.covariances_.shape == structure.shape(expected, n_features)
            if same_shape and last == (self.covariance_type, classes.tolist(), (expected, n_features)):
                return replace(self._parameters, class_prior=prior).batch()
        if self.freeze is not None and (isinstance(self.init, str) or self.freeze not in _given(self.init)):
            raise ValueError(
                f"freeze={self.freeze!r} keeps what a start gives, so init must be a dict with them; "
                f"got init={self.init!r}."
            )
        if not isinstance(self.init, str):
            variances = frame.variance * frame.scale**2
            start = check_start(self.init, structure, n_kernels, n_classes, variances)
            return replace(start, class_prior=prior).batch()
        n_kernels = n_classes if n_kernels is None else n_kernels
        n_starts = self.n_init
        random_state = check_random_state(self.random_state)
        rows = fill_gaps(X, codes) if has_gaps(X) else X
        if self.init == "uniform":
            found = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
        elif self.init == "class":
            own: Any = slice(None) if prior is None else np.flatnonzero(codes >= 0)
            found = starts.class_wise(
                pick(rows, own),
                codes[own],
                n_classes,
                n_starts,
                n_kernels,
                frame,
                structure,
                random_state,
                None if row_weights is None else row_weights[own],
            )
        else:
            choose = starts.k_means_plus_plus if self.init == "k-means++" else starts.random_from_data
            found = choose(rows, n_classes, n_starts, n_kernels, frame, structure, random_state, row_weights)
        if prior is not None:
            found = replace(found, class_prior=np.tile(prior, (n_starts, 1)))
        return found
