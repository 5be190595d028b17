"""The paper's illustration comes back to its parameters, and its record says so."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix.datasets import make_shared_kernel_data
from skmix.paper import illustration, run_illustration
from skmix.paper.example import IllustrationRecord, fit_illustration

OVERLAP = 1.35
"""How much larger errors are than if each row's kernel were known: at most 1.32 over 150 seeds."""
DEVIATIONS = 5.0
"""A Gaussian error beyond five standard deviations has probability 6e-7; there are 27 here."""


@pytest.fixture(scope="module")
def record() -> IllustrationRecord:
    return run_illustration(seed=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parameters_are_recovered_as_well_as_the_rows_allow(seed: int) -> None:
    record = run_illustration(seed)
    assert record.model.converged_
    errors = []
    for compared in record.comparisons():
        error = np.abs(compared.estimated - compared.true) / compared.standard_error
        assert error.max() < DEVIATIONS * OVERLAP, compared.name
        errors.append(error.ravel())
    # Errors of the stated size, not merely below a bound: 27 squared ones average to about one.
    assert 0.4 < np.mean(np.concatenate(errors) ** 2) < 2.5


def test_standard_errors_are_those_of_the_sample_size(record: IllustrationRecord) -> None:
    means, covariances, weights = record.comparisons()
    # Kernel 0 has 0.1 + 0.7 + 0.3 of 2000 rows each, with variance 0.5.
    assert_allclose(means.standard_error[0], np.sqrt(0.5 / 2200))
    assert_allclose(covariances.standard_error[0], 0.5 * np.sqrt(np.array([[2, 1], [1, 2]]) / 2200))
    assert_allclose(weights.standard_error[:, 0], np.sqrt(np.array([0.09, 0.16, 0.09]) / 2000))


def test_record_as_json_has_the_numbers(record: IllustrationRecord) -> None:
    content = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    example, model = record.example, record.model
    assert content["seed"] == 0
    assert content["rows_per_class"] == [2000, 2000, 2000]
    assert content["stopping"] == {"rule": "per-class", "tolerance": 0.1, "max_passes": 50}
    assert content["passes"] == len(content["log_likelihood_per_class_and_pass"]) == model.n_iter_
    assert content["converged"] is True
    assert (model.tol, model.max_iter) == (("per-class", 0.1), 50)
    for name in ("means", "covariances", "weights"):
        assert_array_equal(content["true"][name], getattr(example, name))
        assert_array_equal(content["start"][name], getattr(example, f"start_{name}"))
        assert_array_equal(content["estimated"][name], getattr(model, f"{name}_"))
        error = np.abs(np.subtract(content["estimated"][name], content["true"][name])).max()
        assert content["largest_error"][name] == error


def test_too_few_passes_are_recorded_not_raised() -> None:
    example = replace(illustration(), max_iter=2)
    X, y = make_shared_kernel_data(
        example.means, example.covariances, example.weights, [50, 40, 30], random_state=0
    )
    record = fit_illustration(X, y, example)
    content = record.to_dict()
    assert (content["converged"], content["passes"], content["seed"]) == (False, 2, None)
    assert content["rows_per_class"] == [50, 40, 30]


def test_the_example_is_the_papers() -> None:
    example = illustration()
    assert_array_equal(example.means, [[0.0, 2.0], [3.0, 1.0], [6.0, 3.0]])
    assert_array_equal(example.covariances, [0.5 * np.eye(2)] * 3)
    assert_array_equal(example.weights, [[0.1, 0.7, 0.3], [0.8, 0.1, 0.1], [0.1, 0.2, 0.6]])
    assert_array_equal(example.start_means, [[-1.0, 0.0], [2.0, 1.0], [7.0, 2.0]])
    assert_array_equal(example.start_covariances, [2.0 * np.eye(2)] * 3)
    assert_array_equal(example.start_weights, np.full((3, 3), 1.0 / 3.0))
    assert (example.n_per_class, example.max_iter) == (2000, 50)
    example.means[:] = 0.0
    assert illustration().means[2, 0] == 6.0
