"""scikit-learn's own tests of its Gaussian mixture, with ours in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.mixture.tests import test_gaussian_mixture as theirs
from sklearn.utils.fixes import parse_version

import skmix

# All other tests of their file run here, in both precisions; scikit-learn itself runs float64 alone.
EXCLUDED = {
    "test_gaussian_mixture_all_init_does_not_estimate_gaussian_parameters": (
        "counts the calls of a private function of scikit-learn's M-step; "
        "test_given_parameters_are_the_start below checks what it is about"
    ),
    "test_gaussian_mixture_array_api_compliance": "needs another array library",
    "test_gaussian_mixture_raises_where_array_api_not_implemented": "needs another array library",
}

if parse_version(sklearn.__version__) < parse_version("1.7"):
    EXCLUDED = {
        next(iter(EXCLUDED)): EXCLUDED[next(iter(EXCLUDED))],
        "test_regularisation": "asks for the older words of an error",
    }

# Their tests let these warnings pass; all others are errors here too.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

THEIR_TESTS = {name: test for name, test in vars(theirs).items() if name.startswith("test_")}
globals().update({name: test for name, test in THEIR_TESTS.items() if name not in EXCLUDED})


@pytest.fixture(autouse=True)
def ours_in_place_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theirs, "GaussianMixture", skmix.GaussianMixture)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def global_random_seed() -> int:
    return 42


def test_their_file_is_used_almost_whole() -> None:
    """A test that scikit-learn has removed or renamed must leave the list of exclusions too."""
    assert len(THEIR_TESTS) >= 35
    assert set(EXCLUDED) <= set(THEIR_TESTS)
    assert len(EXCLUDED) <= 3


def test_their_tests_see_our_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that does nothing must make one of their tests fail."""
    monkeypatch.setattr(skmix.GaussianMixture, "fit", lambda self, X, y=None: self)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        theirs.test_gaussian_mixture_single_component_stable()


def test_given_parameters_are_the_start() -> None:
    data = theirs.RandomData(np.random.RandomState(0))
    model = skmix.GaussianMixture(
        data.n_components,
        weights_init=data.weights,
        means_init=data.means,
        precisions_init=data.precisions["full"],
        max_iter=0,
    ).fit(data.X["full"])
    np.testing.assert_array_equal(model.weights_, data.weights)
    np.testing.assert_array_equal(model.means_, data.means)
    np.testing.assert_allclose(model.precisions_, data.precisions["full"], rtol=1e-9)
