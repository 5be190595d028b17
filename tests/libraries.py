"""PyTorch tensors that tests run on beside NumPy arrays, on the CPU and on a CUDA device if there is one."""

from __future__ import annotations

from typing import Any

import pytest

try:
    import torch

    # More threads would only be in the way on rows as few as those of tests.
    torch.set_num_threads(1)
except ImportError:
    torch = None  # type: ignore[assignment]

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch, an optional extra, is not installed")
LIBRARIES: dict[str, Any] = {"torch": lambda values: torch.as_tensor(values)}
if torch is not None and torch.cuda.is_available():
    LIBRARIES["cuda"] = lambda values: torch.as_tensor(values, device="cuda")
each_library = pytest.mark.parametrize(
    "library", [pytest.param(name, marks=needs_torch) for name in LIBRARIES]
)
