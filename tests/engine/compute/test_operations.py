"""What PyTorch does beyond the array API standard, against NumPy on the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import LIBRARIES, each_library, needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax, logsumexp

from skmix.engine.compute.arrays import operations_of, to_numpy


def operate(library: str, name: str, *arguments: Any) -> Any:
    """Return the result of an operation on arrays of a library, as NumPy arrays."""
    given = [LIBRARIES[library](each) if isinstance(each, np.ndarray) else each for each in arguments]
    found = getattr(operations_of(given[0]), name)(*given)
    return tuple(map(to_numpy, found)) if isinstance(found, tuple) else to_numpy(found)


@each_library
def test_responsibilities_are_normalised_over_kernels(library: str) -> None:
    random = np.random.default_rng(1)
    values, offsets = 10.0 * random.normal(size=(2, 4, 50)), random.normal(size=(2, 4))
    weights = random.uniform(0.5, 2.0, size=50)
    values[0, 2] = -1e30
    joint = values + offsets[..., None]
    for given in (None, weights):
        shares, log_sums, mass = operate(library, "normalise", values.copy(), offsets, given)
        expected = np.exp(log_softmax(joint, axis=1)) * (1.0 if given is None else given)
        assert_allclose(shares, expected, rtol=1e-11, atol=1e-250)
        assert_allclose(log_sums, logsumexp(joint, axis=1), rtol=1e-12, atol=1e-12)
        assert_allclose(mass, expected.sum(axis=-1), rtol=1e-11)
    assert_array_equal(shares[0, 2], 0.0)


@needs_torch
@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_the_precision_of_products_is_the_callers_again_after_a_pass(before: str) -> None:
    own = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(before)
        with operations_of(torch.zeros(1)).precision("float32"):
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == before
        with pytest.raises(ValueError, match="TF32 needs a CUDA device, got cpu"):
            operations_of(torch.zeros(1)).precision("tf32").__enter__()
    finally:
        torch.set_float32_matmul_precision(own)
