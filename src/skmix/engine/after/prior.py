"""The default prior on covariances: inverse-Wishart, of ν rows with a covariance T that kernels share.

The covariance of a kernel with few rows is uncertain, while the average over kernels is well determined. T
and ν come from the start of a fit, with each row in the nearest kernel of its class. T is the mean covariance
within kernels, whose correlations are reduced by the share due to chance.

Kernels that classes share overlap, and differ more than their nearest rows do. If they have rows enough, ν is
one row, which keeps a kernel from collapsing. Otherwise covariances are shrunk towards T, and ν maximises the
marginal likelihood of the kernels' scatters. With S the scatter of a kernel's m rows about their mean, and
P ~ inverse-Wishart of mean T for its covariance,

    p(S | ν) ∝ |νT|^(a/2) |νT + S|^(−(a + m − 1)/2) Γ_M((a + m − 1)/2) / Γ_M(a/2),    a = ν + M + 1,

and the mean of P given S is (S + νT) / (ν + m − 1). If scatters differ only by chance, ν is unbounded.
Independent features have one such factor each, of M = 1.

The marginal likelihood assumes Gaussian rows. Where each class has kernels to itself, ν also decides how much
the classifier is like linear discriminant analysis; another ν is then taken if it predicts the classes of
rows that are left out better.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, softmax

from ..problem import Problem
from ..records import FloatArray, IntArray, Parameters
from ..rules.likelihood import Likelihood
from ..structures import Structure, structure_of

# With fewer rows of a kernel for each feature, shrinkage gave higher held-out likelihoods on iris, glass,
# vehicle and letter; with more it depends on the data.
ROWS_PER_FEATURE = 3.0
# Smallest ν, in rows, if covariances are shrunk.
_FEWEST_PRIOR_ROWS = 1e-2
# Largest ν, in rows: all kernels then have the common covariance.
_MOST_PRIOR_ROWS = 1e6
# Largest ν as a multiple of all rows.
_MOST_OF_ROWS = 100.0
# Values of ν among which the maximum of the marginal likelihood is bracketed.
_N_BRACKETS = 60
# Kernels with fewer rows are left out of the marginal likelihood.
_ROWS_FOR_SCATTER = 2.0
# A feature with less than this share of the common variance counts as constant among a kernel's rows.
_CONSTANT = 1e-3
# Smallest variance of T in any direction, relative to each feature's.
_LEAST_VARIANCE = 1e-6
# Values of ν that are tried by leaving rows out.
_N_STRENGTHS = 16
# Fewest rows that are left out in turn.
_FEWEST_LEFT_OUT = 1 << 9
# Numbers over all kernels that limit how many rows are left out.
_NUMBERS = 1 << 24
# A share this small is rounding.
_NOTHING = 1e-9
# A kernel is one of a class if it has more than this share of an average kernel's weight.
_LEAST_WEIGHT = 0.1


def has_few_rows(structure: Structure, n_rows: float, n_kernels: int, n_features: int) -> bool:
    """Return whether kernels have too few rows for a full covariance each."""
    has_matrices = structure.triangular and not structure.shared
    return has_matrices and n_rows / n_kernels < ROWS_PER_FEATURE * n_features


def are_separate(weights: FloatArray) -> bool:
    """Return whether each of several classes has kernels to itself, given weights (K, L)."""
    return weights.shape[1] > 1 and bool(np.all(np.count_nonzero(weights, axis=1) == 1))


def prior_of_start(
    problem: Problem,
    X: FloatArray,
    codes: IntArray,
    row_weights: FloatArray | None,
    start: Parameters,
    *,
    few_rows: bool,
) -> tuple[float, FloatArray]:
    """Return ν and T, (M, M) or (M,) if features are independent, from labelled rows and one start.

    Rows X (n, M) are in the data's coordinates, with class codes (n,) and weights (n,) as numbers of rows.
    The start and T are in the frame of the problem. `few_rows` is whether kernels have few rows.
    """
    structure, frame = problem.structure, problem.frame
    assert isinstance(problem.rule, Likelihood)
    x = np.ascontiguousarray(frame.rows(X).T)
    # Distances do not depend on the features' units, unless kernels are spherical.
    deviations = np.ones_like(frame.variance) if structure.isotropic else np.sqrt(frame.variance)
    nearest = _nearest_kernels(x / deviations, codes, start.means / deviations, start.weights)
    kernels, part = np.unique(nearest, return_inverse=True)
    masses = np.ones(len(x)) if row_weights is None else row_weights
    parts = Parts(x, masses, part, start.weights[kernels].argmax(axis=1), structure)
    floor = np.maximum(problem.rule.regulariser.floor, _LEAST_VARIANCE * frame.variance)
    common, kept = _common_covariance(parts, floor)
    separate = are_separate(start.weights)
    if structure.shared or structure.isotropic or not (few_rows or separate):
        return 1.0, common
    most = _MOST_OF_ROWS * max(parts.total, 1.0)
    strength = min(likeliest_strength(parts, common), most)
    if separate:
        strengths = np.append(strength, np.geomspace(1.0, most, _N_STRENGTHS))
        n_left_out = min(len(x), max(_FEWEST_LEFT_OUT, _NUMBERS // parts.means.size))
        some = np.unique(np.linspace(0, len(x) - 1, n_left_out).astype(np.int64))
        errors = errors_left_out(parts, some, strengths, common, kept)
        strength = float(strengths[_best_strength(errors, masses[some])])
    return strength, common


def _nearest_kernels(x: FloatArray, codes: IntArray, means: FloatArray, weights: FloatArray) -> IntArray:
    """Return the kernel (n,) of its class that is nearest to each row x (n, M)."""
    nearest = np.zeros(len(x), dtype=np.int64)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        kernels = np.flatnonzero(weights[:, code] > _LEAST_WEIGHT / len(weights))
        centres = means[kernels]
        # Squared distances less those of the rows from zero.
        distances = np.sum(centres**2, axis=1) - 2.0 * (x[rows] @ centres.T)
        nearest[rows] = kernels[np.argmin(distances, axis=1)]
    return nearest


class Parts:
    """Rows x (n, M) with masses (n,), divided into the parts (n,) nearest to each of K kernels.

    Codes (K,) are the kernels' classes, which count only where each kernel has one.
    """

    def __init__(
        self, x: FloatArray, masses: FloatArray, part: IntArray, codes: IntArray, structure: Structure
    ) -> None:
        self.x, self.masses, self.part, self.codes, self._structure = x, masses, part, codes, structure
        self._rows = [np.flatnonzero(part == k) for k in range(len(codes))]
        self.mass = np.array([masses[rows].sum() for rows in self._rows])  # (K,)
        self.means = np.stack([masses[rows] @ x[rows] for rows in self._rows]) / self.mass[:, None]
        self.total = float(self.mass.sum())

    def scatter(self, k: int) -> FloatArray:
        """Return the scatter (M, M) of a part about its mean, or the diagonal (M,) of independent features.

        It is not kept: with many features, those of all parts may not fit in memory.
        """
        rows = self._rows[k]
        differences = self.x[rows] - self.means[k]
        return self._structure.second_moment(differences, self.masses[rows, None] * differences)


# ---------------------------------------------------------------- the common covariance


def _common_covariance(parts: Parts, floor: FloatArray) -> tuple[FloatArray, float]:
    """Return T above the floor (M,), and the share of its correlations that was kept."""
    pooled = reduce(add, map(parts.scatter, range(len(parts.mass)))) / parts.total
    if pooled.ndim == 1:
        return np.maximum(pooled, floor), 1.0
    raised, _ = structure_of("tied").raised(pooled[None], floor)
    # Each kernel's mean takes one degree of freedom.
    return reduce_correlations(raised[0], parts.total - len(parts.mass))


def reduce_correlations(covariance: FloatArray, n_rows: float) -> tuple[FloatArray, float]:
    """Remove the share of the correlations of a covariance (M, M) that is due to chance in n rows.

    Also return the share that is kept. The other is the intensity of Schäfer & Strimmer (2005), with the
    variance (1 − ρ²)² / (n − 1) of a correlation of Gaussian rows.
    """
    deviations, diagonal = np.sqrt(np.diagonal(covariance)), np.eye(len(covariance), dtype=bool)
    squared = np.square(covariance / (deviations[:, None] * deviations))[~diagonal]
    by_chance, total = np.sum((1.0 - squared) ** 2) / max(n_rows - 1.0, 1.0), np.sum(squared)
    kept = 0.0 if by_chance >= total else float(1.0 - by_chance / total)
    return np.where(diagonal, covariance, kept * covariance), kept


# ---------------------------------------------------------------- ν by the marginal likelihood


def likeliest_strength(parts: Parts, common: FloatArray) -> float:
    """Return the ν of the highest marginal likelihood, given T."""
    used = np.flatnonzero(parts.mass > _ROWS_FOR_SCATTER).tolist()
    eigenvalues = [relative_eigenvalues(parts.scatter(k), common, parts.mass[k]) for k in used]
    if not np.isfinite(eigenvalues).any():
        return _MOST_PRIOR_ROWS
    masses, relative = np.repeat(parts.mass[used], len(eigenvalues[0])), np.concatenate(eigenvalues)

    def loss(log_strength: float) -> float:
        return -log_marginal_likelihood(float(np.exp(log_strength)), masses, relative)

    grid = np.linspace(np.log(_FEWEST_PRIOR_ROWS), np.log(_MOST_PRIOR_ROWS), _N_BRACKETS)
    best = int(np.argmin([loss(log_strength) for log_strength in grid]))
    if best == len(grid) - 1:
        return _MOST_PRIOR_ROWS
    bracket = grid[max(best - 1, 0)], grid[best + 1]
    return float(np.exp(minimize_scalar(loss, bounds=bracket, method="bounded").x))


def relative_eigenvalues(scatter: FloatArray, common: FloatArray, mass: float) -> FloatArray:
    """Return the eigenvalues (1, M) of a scatter (M, M) relative to T (M, M), or (M, 1) of diagonals (M,).

    Features that hardly vary among the kernel's rows, of that mass, are left out of its scatter and of T, and
    replaced by NaN: pixels that are white in all images of a class would otherwise drive ν to zero.
    """
    least = _CONSTANT * max(mass, 1.0)
    if scatter.ndim == 1:
        ratios = scatter / common
        return np.where(ratios > least, ratios, np.nan)[:, None]
    varies = np.flatnonzero(np.diagonal(scatter) > least * np.diagonal(common))
    eigenvalues, pairs = np.full((1, len(common)), np.nan), np.ix_(varies, varies)
    if len(varies):
        relative = eigh(scatter[pairs], common[pairs], eigvals_only=True)
        eigenvalues[0, : len(varies)] = np.maximum(relative, 0.0)
    return eigenvalues


def log_marginal_likelihood(strength: float, masses: FloatArray, eigenvalues: FloatArray) -> float:
    """Return log p(S | ν) of J scatters, up to a constant.

    They are of masses (J,), with eigenvalues (J, D) as by `relative_eigenvalues`. The marginal distribution
    of the features that vary has the same form, with their number in place of M.
    """
    dimensions = np.isfinite(eigenvalues).sum(axis=1, keepdims=True)
    before = strength + dimensions + 1.0  # a
    after = before + masses[:, None] - 1.0
    halves = 0.5 * np.arange(eigenvalues.shape[1])
    # A factor of p(S | ν) for each eigenvalue: NaN beyond the features that vary.
    terms = 0.5 * (before * np.log(strength) - after * np.log(strength + eigenvalues))
    terms += gammaln(0.5 * after - halves)
    terms -= gammaln(0.5 * before - halves)
    return float(np.nansum(terms))


# ---------------------------------------------------------------- ν by leaving rows out


def _best_strength(errors: FloatArray, masses: FloatArray) -> int:
    """Return the index of the best strength, by errors (n, G) of rows with masses (n,).

    The first one is kept unless another gains more than one standard error, plus one row, so that rounding
    never decides.
    """
    best = int(np.argmin(masses @ errors))
    gains = errors[:, 0] - errors[:, best]
    variance = masses @ (gains - np.average(gains, weights=masses)) ** 2
    return best if masses @ gains > np.sqrt(1.0 + variance) else 0


def errors_left_out(
    parts: Parts, some: IntArray, strengths: FloatArray, common: FloatArray, kept: float
) -> FloatArray:
    """Return squared errors (n, G) of the class probabilities of some rows (n,), each left out, for ν (G,).

    Each part is a kernel of a class, with a covariance of (S + νT) / (ν + m). A row is predicted without its
    share in the mean, mass and scatter of its part and in T, of whose correlations a share was `kept`. A mass
    above one stands for several rows; one is left out. Rows whose class has no other rows have no error.

    Leaving a row out subtracts a multiple of uuᵀ from S + νT, for its deviation u from the mean of its part,
    so that one eigendecomposition for each part serves all rows and strengths.
    """
    x, part, masses = parts.x[some], parts.part[some], np.minimum(parts.masses[some], 1.0)
    mass, codes, u = parts.mass[part], parts.codes[part], x - parts.means[part]
    # Without its only row a part is empty.
    alone = mass - masses <= _NOTHING * mass
    left = np.where(alone, 1.0, mass - masses)
    # The multiple of uuᵀ that the scatter of the row's part loses.
    lost = np.where(alone, 0.0, masses * mass / left)[:, None]
    log_joint = np.full((len(x), len(strengths), int(parts.codes.max()) + 1), -np.inf)
    for k, code in enumerate(parts.codes):
        inside, differences = part == k, x - parts.means[k]
        differences[inside] *= (mass / left)[inside, None]
        less = lost * (inside[:, None] + strengths * kept / parts.total)
        remaining = np.where(inside, left, parts.mass[k])[:, None]
        of_part = _without_row(parts.scatter(k), common, differences, u, strengths, less)
        logs = np.log(remaining) + 0.5 * x.shape[1] * np.log(remaining + strengths)
        logs -= 0.5 * ((remaining + strengths) * of_part[0] + of_part[1])
        logs[inside & alone] = -np.inf
        log_joint[..., code] = np.logaddexp(log_joint[..., code], logs)
    known = np.flatnonzero(np.isfinite(log_joint[np.arange(len(x)), 0, codes]))
    deviations = softmax(log_joint[known], axis=-1)
    deviations[np.arange(len(known)), :, codes[known]] -= 1.0
    errors = np.zeros(log_joint.shape[:2])
    errors[known] = (deviations**2).sum(axis=-1)
    return errors


def _without_row(
    scatter: FloatArray,
    common: FloatArray,
    differences: FloatArray,
    u: FloatArray,
    strengths: FloatArray,
    less: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return dᵀA⁻¹d and log |A| − log |T|, (n, G) each, for rows d and u (n, M) and A = S + νT − less · uuᵀ.

    The strengths ν are (G,), the multiples (n, G). Of independent features, A has only the diagonal.
    """
    if common.ndim == 1:
        variances = np.maximum(scatter / common, 0.0) + strengths[:, None]
        squares, lost = differences**2 / common, u**2 / common
        distances, log_determinants = np.empty(less.shape), np.empty(less.shape)
        for g, of_strength in enumerate(variances):
            remaining = np.maximum(of_strength - less[:, g, None] * lost, _NOTHING * of_strength)
            distances[:, g] = (squares / remaining).sum(axis=1)
            log_determinants[:, g] = np.log(remaining).sum(axis=1)
        return distances, log_determinants
    eigenvalues, axes = eigh(scatter, common)
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0)[:, None] + strengths)
    differences, u = differences @ axes, u @ axes
    # Sherman & Morrison, and the determinant of a matrix less uuᵀ.
    share = np.maximum(1.0 - less * (u**2 @ inverse), _NOTHING)
    distances = differences**2 @ inverse + less * ((differences * u) @ inverse) ** 2 / share
    return distances, np.log(share) - np.log(inverse).sum(axis=0)
