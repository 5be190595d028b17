"""Export estimators as ONNX models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from .. import _version
from .._errors import Argument, ArgumentError
from ..data.recipe import Recipe, in_words
from ..data.write import replacing
from ..engine.numbers import safe_log
from ..engine.records import FARTHEST, Parameters, frame_of
from ..engine.structures import structure_of
from .checks import warn_caller
from .graph import WhitenedKernels, build_graph

if TYPE_CHECKING:
    from onnx import ModelProto


class ExportMixin:
    """Adds `to_onnx`."""

    n_features_in_: int

    def _graph_parts(self) -> dict[str, Any]:
        """Return the arguments of `build_graph` that depend on the estimator."""
        raise NotImplementedError

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike = np.float64
    ) -> ModelProto:
        """Return the fitted estimator as an ONNX model, and write it to a file if `path` is given.

        The input is ``X`` (n, M) for any n. The outputs are ``label`` (n,) and ``probabilities`` (n, J), as
        from `predict` and `predict_proba`, or ``responsibilities`` (n, K), as from `transform`, and
        ``log_density`` (n,), as from `score_samples`.

        If the model was fitted to a table or a data frame with categories, X has the numeric columns, and a
        second input, ``categories`` (n, Q), has the others as text, "" for missing values. Both keep the
        order of the table.

        Parameters
        ----------
        path : path-like, default=None
            The file to create or replace, such as ``"model.onnx"``.
        dtype : {float64, float32}, default=float64
            Type of X, of the probabilities and of the log-density. The graph computes in double precision:
            float32 applies to input and output only.

        Returns
        -------
        onnx.ModelProto
            The model, in standard operators (opset 18, and ``LabelEncoder`` for categories).

        Raises
        ------
        ImportError
            If onnx is not installed.
        ValueError
            If groups have different means (`group_shift`), and for a search that averages several models.

        Notes
        -----
        Rows with a missing value get NaN as probabilities and an arbitrary label: the graph does not
        marginalise over missing values. Nor does it reject outliers, or compensate and transform values: X is
        on the scale of the model, and a warning says so. Dates are numbers of days since 1970.
        """
        check_is_fitted(self)
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {kind}.")
        preparation = getattr(self, "preparation_", {"transform": "none"})
        if preparation["transform"] != "none" or preparation.get("compensate"):
            warn_caller(
                "The graph does not prepare the values of X as the model does: give them on the scale "
                f"{in_words(preparation)}."
            )
        model = build_graph(
            n_features=Recipe.of(self).n_features,
            columns=preparation.get("columns"),
            dtype=kind,
            producer_version=_version.__version__,
            **self._graph_parts(),
        )
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString(deterministic=True))
        return model


def refuse_average(search: Any, n_members: int) -> None:
    """Raise ValueError for a search whose result is an average of several models."""
    if n_members > 1:
        raise ArgumentError(
            f"ONNX graphs are of single models, and this {type(search).__name__} averages {n_members}: fit "
            "with ",
            Argument("n_kernels", "N", wording="n_members=1"),
            ".",
        )


def whitened_kernels(
    parameters: Parameters, covariance_type: str, columns: list[int], *, by_class: bool
) -> WhitenedKernels:
    """Return the kernels of a mixture of some `columns` of X, in the engine's frame.

    With `by_class`, the graph sums over kernels with the weights of each class.
    """
    structure, n_features = structure_of(covariance_type), parameters.means.shape[1]
    frame = frame_of(parameters, structure)
    inside = frame.enter(parameters.batch(), structure)
    factor = structure.factor(inside.covariances, n_features)
    log_peaks = inside.tail.log_peaks(factor.log_determinant, n_features)[0] - frame.log_volume()
    return WhitenedKernels(
        columns=columns,
        scale=frame.scale,
        shift=frame.shift,
        farthest=FARTHEST,
        means=inside.means[0],
        whitener=factor.whitener[0],
        log_peaks=log_peaks,
        log_weights=safe_log(parameters.weights) if by_class else None,
        degrees=parameters.tail.degrees,
    )
