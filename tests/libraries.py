"""Array libraries that tests run on beside NumPy: array-api-strict, and PyTorch where it is installed."""

from __future__ import annotations

import array_api_strict
import pytest

try:
    import torch

    # More threads would only be in the way on rows as few as those of tests.
    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch, an optional extra, is not installed")
LIBRARIES = {
    "array-api-strict": array_api_strict.asarray,
    "torch": lambda values: torch.as_tensor(values),
}
each_library = pytest.mark.parametrize(
    "library", ["array-api-strict", pytest.param("torch", marks=needs_torch)]
)
