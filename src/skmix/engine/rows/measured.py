"""Rows in memory whose values have errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..estep import errors
from ..estep.errors import ErrorRows
from ..estep.inputs import Kernels
from ..measured import Measured
from ..records import Factor, FloatArray, Parameters, Setting
from .source import ArrayRows, Centres, Expected


class MeasuredRows(ArrayRows):
    """Rows with errors, zero in some rows or features; each row has at least one value."""

    X: Measured

    @property
    def error_variances(self) -> FloatArray:
        return self.X.variances(self.weights)

    def with_features(self, columns: Sequence[int]) -> MeasuredRows:
        return self._with_value(list(columns))

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        if centres is None:  # moments are about the means, whatever the structure
            centres = np.ones(parameters.means.shape[:2], dtype=bool), parameters.means
        kernels = Kernels.of(parameters, factor, setting.structure, centres)
        n_classes = parameters.weights.shape[-1]

        def make() -> ErrorRows:
            return ErrorRows(self.X, self.codes_within(n_classes), self.weights, setting.frame)

        rows = self._keep(setting.frame, n_classes, make)
        arguments = rows, kernels, parameters.covariances, setting.pool
        return errors.expect(*arguments, with_moments=setting.with_moments), kernels.origins
