"""scikit-learn's own tests of its Gaussian mixtures, with ours in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.mixture.tests import test_bayesian_mixture, test_gaussian_mixture
from sklearn.utils.fixes import parse_version

import skmix

MODULES = {"GaussianMixture": test_gaussian_mixture, "BayesianGaussianMixture": test_bayesian_mixture}
# All other tests of their files run here, in both precisions; scikit-learn itself runs float64 alone.
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

THEIR_TESTS = {
    (kind, name): test
    for kind, module in MODULES.items()
    for name, test in vars(module).items()
    if name.startswith("test_")
}
globals().update(
    {f"{name}_of_{kind}": test for (kind, name), test in THEIR_TESTS.items() if name not in EXCLUDED}
)


@pytest.fixture(autouse=True)
def ours_in_place_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, module in MODULES.items():
        monkeypatch.setattr(module, kind, getattr(skmix, kind))


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def global_random_seed() -> int:
    return 42


def test_their_files_are_used_almost_whole() -> None:
    """A test that scikit-learn has removed or renamed must leave the list of exclusions too."""
    assert len(THEIR_TESTS) >= 49
    assert set(EXCLUDED) <= {name for _, name in THEIR_TESTS}
    assert len(EXCLUDED) <= 3


def test_their_tests_see_our_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that does nothing must make one of their tests fail."""
    for kind, name in (
        ("GaussianMixture", "test_gaussian_mixture_single_component_stable"),
        ("BayesianGaussianMixture", "test_bayesian_mixture_weights"),
    ):
        monkeypatch.setattr(getattr(skmix, kind), "fit", lambda self, X, y=None: self)
        with pytest.raises((NotFittedError, AttributeError)):
            THEIR_TESTS[kind, name]()


def test_given_parameters_are_the_start() -> None:
    data = test_gaussian_mixture.RandomData(np.random.RandomState(0))
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


@pytest.mark.parametrize("kind", MODULES)
def test_a_subclass_that_changes_a_step_of_the_fit_is_refused(kind: str) -> None:
    """Nothing would call the new step."""
    theirs = getattr(sklearn.mixture, kind)
    changed = type("Mine", (getattr(skmix, kind),), {"_m_step": theirs._m_step.__get__(object())})
    unchanged = type("Mine", (getattr(skmix, kind),), {"helper": theirs._m_step})
    X = np.arange(8.0)[:, None]
    with pytest.raises(TypeError, match=f"Mine overrides _m_step, .* sklearn.mixture.{kind}"):
        changed().fit(X)
    assert unchanged().fit(X).converged_
