"""Array libraries that tests run on beside NumPy: array-api-strict, PyTorch where it is installed, and on a
machine with a CUDA device PyTorch and CuPy on that device."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import pytest

try:
    import torch

    # More threads would only be in the way on rows as few as those of tests.
    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch, an optional extra, is not installed")
LIBRARIES: dict[str, Any] = {
    "array-api-strict": array_api_strict.asarray,
    "torch": lambda values: torch.as_tensor(values),
}
if torch is not None and torch.cuda.is_available():
    LIBRARIES["cuda"] = lambda values: torch.as_tensor(values, device="cuda")
    if importlib.util.find_spec("cupy"):
        import cupy

        LIBRARIES["cupy"] = cupy.asarray
each_library = pytest.mark.parametrize(
    "library", [pytest.param(name, marks=needs_torch if name == "torch" else ()) for name in LIBRARIES]
)
