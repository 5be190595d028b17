"""Estimators as ONNX models."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from ..engine.covariances import structure_of
from ..engine.density import frame_of
from ..engine.model import Parameters
from ..engine.sources.summary import FARTHEST
from ..io import replacing
from ..io.graph import Kernels, build_graph

if TYPE_CHECKING:
    from onnx import ModelProto


class ExportMixin:
    """Adds `to_onnx`. The class says what its graph is made of in `_graph_parts`."""

    def _graph_parts(self) -> dict[str, Any]:
        """Return the arguments of `build_graph` that are the estimator's own."""
        raise NotImplementedError

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike = np.float64
    ) -> ModelProto:
        """Return the fitted estimator as an ONNX model, and write it to a file if asked.

        Its input is ``X`` (n, M) for any n. Its outputs are ``label`` (n,) and ``probabilities`` (n, J) as
        from `predict` and `predict_proba`, or ``responsibilities`` (n, K) as from `transform`, and
        ``log_density`` (n,) as from `score_samples`.

        Parameters
        ----------
        path : path-like, default=None
            The file to make or to replace, such as ``"model.onnx"``.
        dtype : {float64, float32}, default=float64
            Type of X, of the probabilities and of the log-density. The graph computes in double precision
            either way: float32 rounds what goes in and what comes out, nothing between.

        Returns
        -------
        onnx.ModelProto
            The model, of plain operators (opset 18).

        Raises
        ------
        ImportError
            When onnx is not installed.

        Notes
        -----
        Rows with a missing value get NaN instead of probabilities, and a label without meaning: marginalising
        over what is missing is not part of the graph, nor is the rejection of outliers.
        """
        from .. import __version__

        check_is_fitted(self)
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {kind}.")
        model = build_graph(
            n_features=self.n_features_in_,  # type: ignore[attr-defined]
            dtype=kind,
            producer_version=__version__,
            **self._graph_parts(),
        )
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString(deterministic=True))
        return model


def kernels_of(
    parameters: Parameters, covariance_type: str, columns: list[int], *, by_class: bool
) -> Kernels:
    """Return the kernels of one model as the graph needs them, in the engine's own coordinates.

    Parameters
    ----------
    parameters : Parameters
        One model.
    covariance_type : str
        Its covariance structure.
    columns : list of int
        Its columns of X.
    by_class : bool
        Whether the graph is to sum over kernels, with each class's weights.
    """
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    if structure.projects:
        # The graph knows whiteners alone: dense matrices say the same.
        full = structure.to_full(parameters.covariances[None], n_kernels, n_features)[0]
        parameters, structure = replace(parameters, covariances=full), structure_of("full")
    frame = frame_of(parameters, structure)
    inside = frame.enter(parameters.batch(), structure)
    factor = structure.factor(inside.covariances, n_features)
    level = -0.5 * (n_features * np.log(2.0 * np.pi) + factor.log_determinant[0]) - frame.log_volume()
    return Kernels(
        columns=columns,
        scale=frame.scale,
        shift=frame.shift,
        farthest=FARTHEST,
        means=inside.means[0],
        whitener=factor.whitener[0],
        level=level,
        log_weights=log_probabilities(parameters.weights) if by_class else None,
    )


def log_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms, −inf for zero."""
    with np.errstate(divide="ignore"):
        logarithms: np.ndarray = np.log(probabilities)
    return logarithms
