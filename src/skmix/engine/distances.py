"""Distances between Gaussian kernels, of one model or of two."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import FloatArray, Parameters
from .structures import structure_of


def jeffreys(first: Parameters, first_type: str, second: Parameters, second_type: str) -> FloatArray:
    """Return the Jeffreys divergences KL(p‖q) + KL(q‖p), shape (K, K'), of kernels of two models.

    For N(μ, P) and N(ν, Q) that is ½ tr(P⁻¹Q + Q⁻¹P − 2I) + ½ (μ − ν)ᵀ(P⁻¹ + Q⁻¹)(μ − ν).
    """
    lines = []
    for difference, own, others in _pairs(first, first_type, second, second_type):
        if own.ndim == 1:  # variances
            # (p − q)²/pq in place of q/p + p/q − 2 keeps the digits of small distances.
            line = ((own - others) ** 2 / (own * others)).sum(axis=-1)
            line += (difference**2 * (1.0 / own + 1.0 / others)).sum(axis=-1)
        else:
            # P⁻¹Q + Q⁻¹P − 2I = P⁻¹(P − Q)Q⁻¹(P − Q) up to the order of factors, which the trace ignores.
            gap = own - others
            left, right = np.linalg.solve(own, gap), np.linalg.solve(others, gap)
            line = np.einsum("kde,ked->k", left, right)
            white = (
                np.linalg.solve(own, difference.T).T + np.linalg.solve(others, difference[..., None])[..., 0]
            )
            line += (difference * white).sum(axis=-1)
        lines.append(0.5 * line)
    return np.maximum(np.array(lines), 0.0)


def bhattacharyya(first: Parameters, first_type: str, second: Parameters, second_type: str) -> FloatArray:
    """Return the Bhattacharyya distances −log ∫√(pq), shape (K, K'), of kernels of two models.

    For N(μ, P) and N(ν, Q) with A = (P + Q)/2 that is ⅛ (μ − ν)ᵀA⁻¹(μ − ν) + ½ log(|A| / √(|P||Q|)).
    """
    lines = []
    for difference, own, others in _pairs(first, first_type, second, second_type):
        average = 0.5 * (own + others)
        if own.ndim == 1:
            line = 0.125 * (difference**2 / average).sum(axis=-1)
            line += 0.5 * (np.log(average) - 0.5 * (np.log(own) + np.log(others))).sum(axis=-1)
        else:
            white = np.linalg.solve(average, difference[..., None])[..., 0]
            logs = [np.linalg.slogdet(each)[1] for each in (average, own, others)]
            line = 0.125 * (difference * white).sum(axis=-1) + 0.5 * (logs[0] - 0.5 * (logs[1] + logs[2]))
        lines.append(line)
    return np.maximum(np.array(lines), 0.0)


DISTANCES = {"jeffreys": jeffreys, "bhattacharyya": bhattacharyya}


def _pairs(
    first: Parameters, first_type: str, second: Parameters, second_type: str
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Yield, for each kernel of the first model, differences of means (K', M), and both covariances.

    These are variances, (M,) and (K', M), if neither model has correlations, and else matrices, (M, M) and
    (K', M, M). Features are in units of the first kernel's deviations, so that scales do not matter.
    """
    n_features = first.means.shape[1]
    structures = structure_of(first_type), structure_of(second_type)
    if not all(each.by_feature for each in structures):
        full = [
            structure.to_full(
                np.asarray(each.covariances, dtype=np.float64)[None], len(each.means), n_features
            )[0]
            for structure, each in zip(structures, (first, second), strict=True)
        ]
        for mean, own in zip(first.means, full[0], strict=True):
            scale = np.sqrt(np.diagonal(own))
            units = scale[:, None] * scale
            yield (mean - second.means) / scale, own / units, full[1] / units
        return
    variances = [
        np.broadcast_to(
            structure.variances(np.asarray(each.covariances, np.float64)[None])[0], each.means.shape
        )
        for structure, each in zip(structures, (first, second), strict=True)
    ]
    for mean, own in zip(first.means, variances[0], strict=True):
        yield (mean - second.means) / np.sqrt(own), own / own, variances[1] / own
