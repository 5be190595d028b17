"""Graphs of mixtures: what ONNX computes is what SciPy does, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, multivariate_t, yeojohnson

from skmix.io.graph import WhitenedKernels, build_graph

pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 4)) * [1.0, 10.0, 0.1, 2.0] + [0.0, 50.0, 0.0, -3.0]
PRIOR = np.log([0.5, 0.2, 0.3])


class FeatureSet:
    """Kernels, and their log-densities by SciPy in the units of X."""

    def __init__(
        self,
        columns: list[int],
        n_kernels: int,
        *,
        diagonal: bool = False,
        tied: bool = False,
        degrees: np.ndarray | None = None,
        background: np.ndarray | None = None,
        by_class: bool = True,
        seed: int = 0,
    ) -> None:
        random, m = np.random.default_rng(seed), len(columns)
        scale, shift = np.array([1.0, 8.0, 0.2, 2.0])[columns], np.array([0.0, 6.0, 0.5, -1.0])[columns]
        means = random.normal(size=(n_kernels, m))
        roots = random.normal(size=(1 if tied else n_kernels, m, m)) + 2.0 * np.eye(m)
        if diagonal:
            roots = roots * np.eye(m)
        covariances = roots @ roots.swapaxes(1, 2)
        weights = random.dirichlet(np.ones(n_kernels), size=3).T
        weights[0, 1] = 0.0
        weights /= weights.sum(axis=0)
        self.places = [means[k] * scale + shift * scale for k in range(n_kernels)]
        outside = np.broadcast_to(covariances * np.outer(scale, scale), (n_kernels, m, m))
        self.kernels = [
            multivariate_normal(place, own) if degrees is None else multivariate_t(place, own, degrees[k])
            for k, (place, own) in enumerate(zip(self.places, outside, strict=True))
        ]
        level = [float(own.logpdf(place)) for own, place in zip(self.kernels, self.places, strict=True)]
        self.columns, self.box, self.background, self.by_class = columns, None, background, by_class
        with np.errstate(divide="ignore"):
            self.log_weights = np.log(weights)
            if background is not None:
                self.box = np.array([[-20.0] * m, [30.0 + j for j in range(m)]])
                self.log_weights = self.log_weights + np.log(1.0 - background)
        whitener = np.linalg.inv(np.linalg.cholesky(covariances))
        self.record = WhitenedKernels(
            columns=columns,
            scale=scale,
            shift=shift,
            farthest=1e6,
            means=means,
            whitener=np.diagonal(whitener, axis1=1, axis2=2) if diagonal else whitener,
            level=np.array(level)[:1] if tied and degrees is None else np.array(level),
            log_weights=self.log_weights if by_class else None,
            degrees=degrees,
            box=self.box,
            log_background=None if background is None else np.log(background),
        )

    def outcomes(self, rows: np.ndarray) -> np.ndarray:
        """Return log-densities (n, J) of classes or kernels."""
        own = rows[:, self.columns]
        found = np.column_stack([kernel.logpdf(own) for kernel in self.kernels])
        uniform = None if self.box is None else -np.log(np.prod(self.box[1] - self.box[0]))
        if not self.by_class:
            return found if uniform is None else np.column_stack([found, np.full(len(rows), uniform)])
        classes = [logsumexp(found + own, axis=1) for own in self.log_weights.T]
        if uniform is not None and self.background is not None:
            classes = [
                np.logaddexp(own, np.log(share) + uniform)
                for own, share in zip(classes, self.background, strict=True)
            ]
        return np.column_stack(classes)


def run(model: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def graph(
    feature_sets: Sequence[FeatureSet], log_prior: np.ndarray = PRIOR, *labels: np.ndarray, **options: Any
) -> Any:
    given = {"n_features": 4, "dtype": np.dtype(np.float64), "producer_version": "7", **options}
    return build_graph([each.record for each in feature_sets], log_prior, *labels, **given)


@pytest.mark.parametrize(
    "feature_sets",
    [
        [FeatureSet([0, 1, 2, 3], 3)],
        [FeatureSet([2, 0], 4, tied=True), FeatureSet([3], 2, diagonal=True, seed=1)],
        [FeatureSet([1, 3], 3, diagonal=True, tied=True)],
        [FeatureSet([3, 1, 0], 3, degrees=np.array([1.0, 4.0, 30.0]))],
        [FeatureSet([1, 2], 2, diagonal=True, degrees=np.array([2.0, 5.0]), tied=True)],
        [FeatureSet([0, 3], 3, background=np.array([0.1, 0.3, 0.01]))],
    ],
)
def test_densities_labels_and_probabilities(feature_sets: list[FeatureSet]) -> None:
    joint = sum(each.outcomes(X) for each in feature_sets) + PRIOR
    labels = np.array(["x", "y", "z"])
    for temperature in (1.0, 2.5):
        model = graph(feature_sets, PRIOR, labels, temperature=temperature)
        out = run(model, X=X)
        assert list(out) == ["label", "probabilities", "log_density"]
        assert_array_equal(out["label"], labels[joint.argmax(axis=1)])
        assert_allclose(out["probabilities"], softmax(joint / temperature, axis=1), rtol=1e-9, atol=1e-12)
        assert_allclose(out["log_density"], logsumexp(joint, axis=1), rtol=1e-10)
    assert model.producer_name == "skmix"
    assert model.producer_version == "7"
    assert [each.version for each in model.opset_import] == [18]


@pytest.mark.parametrize("background", [None, np.array([0.2])])
def test_kernels_as_outcomes(background: np.ndarray | None) -> None:
    one = FeatureSet([0, 1, 3], 3, background=background, by_class=False)
    n_hidden = 0 if background is None else 1
    prior = np.log([0.5, 0.2, 0.2, 0.1][: 3 + n_hidden])
    out = run(graph([one], prior, probabilities="responsibilities", n_hidden=n_hidden), X=X)
    joint = one.outcomes(X) + prior
    assert list(out) == ["responsibilities", "log_density"]
    assert out["responsibilities"].shape == (40, 3)
    assert_allclose(out["responsibilities"], softmax(joint, axis=1)[:, :3], rtol=1e-9, atol=1e-12)
    assert_allclose(out["log_density"], logsumexp(joint, axis=1), rtol=1e-10)


def test_single_precision_is_of_what_goes_in_and_out() -> None:
    one, rows = FeatureSet([0, 1, 2, 3], 3), X.astype(np.float32)
    out = run(graph([one], dtype=np.dtype(np.float32)), X=rows)
    joint = one.outcomes(rows.astype(np.float64)) + PRIOR
    assert out["probabilities"].dtype == out["log_density"].dtype == np.float32
    assert_allclose(out["log_density"], logsumexp(joint, axis=1).astype(np.float32), rtol=1e-6)
    assert_allclose(out["probabilities"], softmax(joint, axis=1), rtol=1e-6, atol=1e-12)


# ---------------------------------------------------------------- features


def mapped(rows: np.ndarray, features: tuple[Any, ...]) -> np.ndarray:
    """Return features of rows, column by column."""
    shift, scale, powers, curves, offset, matrix = features
    z = np.clip((rows - shift) / scale, -1e8, 1e8)
    z = np.column_stack([yeojohnson(z[:, j], powers[j]) for j in range(z.shape[1])])
    if curves is not None:
        for j, (places, values) in enumerate(zip(*curves, strict=True)):
            within = np.interp(z[:, j], places, values)
            z[:, j] = within + z[:, j] - np.clip(z[:, j], places[0], places[-1])
    return z if matrix is None else (z - offset) @ matrix


POWERS = np.array([1.0, 0.0, 2.0, 0.4])
# The first has a piece without width, and none of them has slope one.
CURVES = np.array(
    [
        [[-1.0, 0.0, 0.0, 1.5], [-2.0, -1.0, 1.0, 2.0], [-0.5, 0.1, 0.2, 0.3], [-3.0, 0.0, 1.0, 3.0]],
        [[-2.0, 0.0, 0.0, 1.0], [-1.0, 0.0, 0.1, 3.0], [0.0, 0.2, 1.2, 1.3], [-1.0, 0.5, 1.0, 9.0]],
    ]
)


@pytest.mark.parametrize("curves", [None, CURVES])
@pytest.mark.parametrize("projects", [False, True])
@pytest.mark.parametrize("powers", [np.ones(4), POWERS])
def test_features_are_standardised_bent_and_projected(
    powers: np.ndarray, projects: bool, curves: np.ndarray | None
) -> None:
    features = (X.mean(axis=0), X.std(axis=0), powers, curves, None, None)
    if projects:
        matrix = np.random.default_rng(1).normal(size=(4, 2))
        features = (*features[:-2], np.array([0.5, -1.0, 0.0, 2.0]), matrix)
    one = FeatureSet([1, 0], 3) if projects else FeatureSet([3, 0, 2], 3)
    out = run(graph([one], features=features), X=X)
    joint = one.outcomes(mapped(X, features)) + PRIOR
    assert_allclose(out["probabilities"], softmax(joint, axis=1), rtol=1e-8, atol=1e-12)
    assert_allclose(out["log_density"], logsumexp(joint, axis=1), rtol=1e-9)


def test_columns_of_a_table_are_encoded() -> None:
    columns = {"c": ["x", "y", "z"], "a": None, "s": ["no", "yes"], "d": "date"}
    numbers = X[:, :2]
    text = np.array([["x", "no"], ["y", "yes"], ["z", "no"], ["z", "yes"]] * 10, dtype=object)
    features = np.column_stack(
        [*(text[:, 0] == each for each in "xyz"), numbers[:, 0], text[:, 1] == "yes", numbers[:, 1]]
    ).astype(np.float64)
    one = FeatureSet([0, 3, 2], 3)
    model = graph([one], n_features=6, columns=columns)
    assert {each.domain: each.version for each in model.opset_import} == {"": 18, "ai.onnx.ml": 3}
    out = run(model, X=numbers, categories=text)
    joint = one.outcomes(features) + PRIOR
    assert_allclose(out["probabilities"], softmax(joint, axis=1), rtol=1e-9, atol=1e-12)
    # A category that is not known is missing.
    for wrong in ("", "w"):
        unknown = text.copy()
        unknown[3, 0] = unknown[5, 1] = wrong
        found = run(model, X=numbers, categories=unknown)
        # The second column of categories is feature 4, which the kernels do not use.
        assert np.flatnonzero(np.isnan(found["log_density"])).tolist() == [3]
        assert np.isnan(found["probabilities"][3]).all()
    # Nothing but categories, or but numbers.
    for own, inputs, X_features in (
        ({"c": columns["c"]}, {"categories": text[:, :1]}, features[:, :3]),
        ({"a": None, "d": "date"}, {"X": numbers}, numbers),
    ):
        alone = FeatureSet([1, 0], 2)
        out = run(graph([alone], n_features=X_features.shape[1], columns=own), **inputs)
        expected = logsumexp(alone.outcomes(X_features) + PRIOR, axis=1)
        assert_allclose(out["log_density"], expected, rtol=1e-10)


# ---------------------------------------------------------------- several models


def test_probabilities_are_averaged_or_densities_are() -> None:
    feature_sets = [
        FeatureSet([0, 1], 3),
        FeatureSet([2, 3], 2, seed=1),
        FeatureSet([1, 3], 4, diagonal=True, seed=2),
    ]
    features = (X.mean(axis=0), X.std(axis=0), POWERS, None, None, None)
    priors = [PRIOR, np.log([0.2, 0.2, 0.6]), PRIOR[::-1]]
    others = [
        {
            "feature_sets": [feature_sets[1].record],
            "log_prior": priors[1],
            "temperature": 3.0,
            "features": None,
        },
        {
            "feature_sets": [feature_sets[2].record],
            "log_prior": priors[2],
            "temperature": 0.5,
            "features": features,
        },
    ]
    rows = [X, X, mapped(X, features)]
    joints = [g.outcomes(own) + p for g, own, p in zip(feature_sets, rows, priors, strict=True)]
    posteriors = [softmax(j / t, axis=1) for j, t in zip(joints, (1.5, 3.0, 0.5), strict=True)]
    labels = np.array([5, 6, 7])
    out = run(graph(feature_sets[:1], PRIOR, labels, temperature=1.5, others=others), X=X)
    average = np.mean(posteriors, axis=0)
    assert_allclose(out["probabilities"], average, rtol=1e-9, atol=1e-12)
    assert_array_equal(out["label"], labels[average.argmax(axis=1)])
    assert np.any(average.argmax(axis=1) != posteriors[0].argmax(axis=1))
    assert_allclose(out["log_density"], logsumexp(joints[0], axis=1), rtol=1e-10)
    shares = np.log([0.5, 0.3, 0.2])
    out = run(graph(feature_sets[:1], PRIOR, labels, temperature=1.5, others=others, log_shares=shares), X=X)
    assert_allclose(out["probabilities"], posteriors[0], rtol=1e-9, atol=1e-12)
    assert_array_equal(out["label"], labels[joints[0].argmax(axis=1)])
    densities = np.column_stack([logsumexp(joint, axis=1) for joint in joints])
    assert_allclose(out["log_density"], logsumexp(densities + shares, axis=1), rtol=1e-10)


# ---------------------------------------------------------------- missing and far values


def test_a_missing_value_is_noticed_whatever_a_runtime_makes_of_it() -> None:
    """ONNX does not say what Clip does with NaN: here it is the lower bound."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Clip(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray]:
            return (np.where(np.isnan(x), low, np.clip(x, low, high)),)

    gaps = X[:5].copy()
    gaps[np.arange(4), np.arange(4)] = np.nan
    plain = (np.zeros(4), np.ones(4), np.ones(4), None, None, None)
    projected = (*plain[:-2], np.zeros(4), np.eye(4)[:, [3, 0, 1, 2]])
    feature_sets = [FeatureSet([1], 2), FeatureSet([3, 0], 2, seed=1)]
    for features, missing in (
        (None, [True, True, False, True, False]),
        (plain, [True, True, False, True, False]),
        # Every column has a share in what is projected.
        (projected, [True, True, True, True, False]),
    ):
        model = graph(feature_sets, features=features)
        found = ReferenceEvaluator(model, new_ops=[Clip]).run(None, {"X": gaps})
        for probabilities, density in (found, run(model, X=gaps).values()):
            assert_array_equal(np.isnan(probabilities), np.tile(np.array(missing)[:, None], 3))
            assert_array_equal(np.isnan(density), missing)


def test_far_values_have_finite_densities() -> None:
    one = FeatureSet([0, 1, 2, 3], 3)
    far = np.array([[1e200, 0.0, 0.0, 0.0], [0.0, 0.0, -1e300, 0.0], [1e9, 1e9, 1e9, 1e9]])
    for features in (None, (np.zeros(4), np.ones(4), POWERS, None, None, None)):
        out = run(graph([one], features=features), X=far)
        assert np.isfinite(out["log_density"]).all()
        assert_allclose(out["probabilities"].sum(axis=1), 1.0)
    # Coordinates are cut at a million of their units.
    nearer = np.clip(far / one.record.scale - one.record.shift, -1e6, 1e6)
    nearer = (nearer + one.record.shift) * one.record.scale
    out = run(graph([one]), X=far)
    assert_allclose(out["log_density"], logsumexp(one.outcomes(nearer) + PRIOR, axis=1), rtol=1e-9)
