"""Example data that come with the package, and simulated rows of shared-kernel mixtures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state

__all__ = ["copy_examples", "load_penguins", "load_vowels", "make_shared_kernel_data"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Largest deviation from one of the sum of a column of weights, which may be rounded or float32.
_SUM_TOLERANCE = 1e-6
# Asymmetry and negative eigenvalues up to this multiple of a covariance's scale count as rounding errors.
_ROUNDING = 1e-8
# Its README says where the data come from.
_EXAMPLES = files("skmix") / "examples"


def load_penguins(target: str = "species") -> tuple[Any, Any]:
    """Load a table of 344 penguins with text columns and gaps.

    Three species on three islands of the Palmer Archipelago, Antarctica: bill, flipper and mass, the island,
    the sex and the year. It needs pandas.

    Parameters
    ----------
    target : str, default="species"
        The column to predict, such as ``"species"`` (Adelie, Chinstrap, Gentoo) or ``"sex"`` (female, male),
        which is harder.

    Returns
    -------
    X : pandas.DataFrame of shape (N, 7)
        The other columns, gaps included.
    y : pandas.Series of shape (N,)
        The target. Rows in which it is missing are left out: 11 of 344 have no sex.

    Notes
    -----
    Collected by Kristen Gorman and the Palmer Station Long Term Ecological Research Program [1]_; in the
    public domain (CC0); from the package palmerpenguins.

    References
    ----------
    .. [1] K. B. Gorman, T. D. Williams, W. R. Fraser: Ecological sexual dimorphism and environmental
       variability within a community of Antarctic penguins (genus Pygoscelis). PLoS ONE 9(3), e90081, 2014.

    Examples
    --------
    >>> from skmix.datasets import load_penguins
    >>> X, y = load_penguins("sex")
    >>> X.shape, sorted(y.unique())
    ((333, 7), ['female', 'male'])
    """
    import pandas as pd

    with (_EXAMPLES / "penguins.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file)
    if target not in table:
        raise ValueError(f"target={target!r} is not one of the columns {', '.join(table)}.")
    table = table.dropna(subset=[target], ignore_index=True)
    return table.drop(columns=target), table[target]


def load_vowels(part: str = "train") -> tuple[Any, Any, Any]:
    """Load utterances of two Japanese vowels by nine men, frame by frame. It needs pandas.

    Parameters
    ----------
    part : {'train', 'test'}, default='train'
        Ten utterances of each speaker to learn from, or fifteen others, of 7 to 29 frames each.

    Returns
    -------
    X : pandas.DataFrame of shape (N, 12)
        Cepstral coefficients of each frame, rounded to two decimals.
    speaker : pandas.Series of shape (N,)
        The speaker of each frame, s1 to s9.
    utterance : pandas.Series of shape (N,)
        The utterance of each frame.

    Notes
    -----
    A part of Japanese Vowels [1]_ of the UCI repository, licence CC BY 4.0.

    References
    ----------
    .. [1] M. Kudo, J. Toyama, M. Shimbo: Multidimensional curve classification using passing-through regions.
       Pattern Recognition Letters 20, 1103-1111, 1999.

    Examples
    --------
    >>> from skmix.datasets import load_vowels
    >>> X, speaker, utterance = load_vowels()
    >>> X.shape, utterance.nunique()
    ((1486, 12), 90)
    """
    import pandas as pd

    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test', got {part!r}.")
    with (_EXAMPLES / "vowels.csv.gz").open("rb") as file:
        table = pd.read_csv(file, compression="gzip")
    table = table[table["utterance"].str.startswith(part)].reset_index(drop=True)
    return table.drop(columns=["speaker", "utterance"]), table["speaker"], table["utterance"]


def copy_examples(folder: str | PathLike[str]) -> Path:
    """Copy the example data into a folder: a table, and samples of cells as FCS files.

    ``skmix examples`` does the same. Files of the same names are replaced.

    Parameters
    ----------
    folder : path
        Where to put them; it is made if it does not exist.

    Returns
    -------
    pathlib.Path
        The folder. It has ``penguins.csv`` (see `load_penguins`), ``vowels.csv.gz`` (see `load_vowels`),
        ``wells`` with seven FCS files of
        4,000 cells each, ``wells.csv``, which says what is in which well, and a README with origins and
        licences.
    """
    with as_file(_EXAMPLES) as examples:
        for path in filter(Path.is_file, examples.rglob("*")):
            target = Path(folder, path.relative_to(examples))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return Path(folder)


def make_shared_kernel_data(
    means: ArrayLike,
    covariances: ArrayLike,
    weights: ArrayLike,
    n_per_class: int | Sequence[int] | IntArray,
    *,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[FloatArray, IntArray]:
    """Draw rows from a shared-kernel mixture, class by class.

    The kernel of a row of class j is drawn with the probabilities in column j of `weights`; all classes share
    the kernels.

    Parameters
    ----------
    means : array-like of shape (K, M)
        Kernel means.
    covariances : array-like of shape (K, M, M)
        Kernel covariances, symmetric and positive semidefinite; they may be singular.
    weights : array-like of shape (K, L)
        Pr(kernel k | class j); each column sums to one.
    n_per_class : int or sequence of L ints
        Rows to draw for each class; in a sequence some may be zero.
    random_state : int, RandomState instance or None, default=None
        Source of randomness; an int gives reproducible results.

    Returns
    -------
    X : ndarray of shape (N, M)
        The rows, in the order of the classes.
    y : ndarray of shape (N,), int
        The classes 0 to L - 1.

    Examples
    --------
    >>> from skmix.datasets import make_shared_kernel_data
    >>> X, y = make_shared_kernel_data(
    ...     means=[[0.0], [5.0]],
    ...     covariances=[[[1.0]], [[1.0]]],
    ...     weights=[[0.9, 0.2], [0.1, 0.8]],
    ...     n_per_class=[2, 3],
    ...     random_state=0,
    ... )
    >>> X.shape, y.tolist()
    ((5, 1), [0, 0, 1, 1, 1])
    """
    kernel_means = _finite("means", means)
    if kernel_means.ndim != 2 or 0 in kernel_means.shape:
        raise ValueError(f"means must have shape (kernels, features), got {kernel_means.shape}.")
    n_kernels, n_features = kernel_means.shape
    square_roots = _square_roots(covariances, n_kernels, n_features)
    class_weights = _check_weights(weights, n_kernels)
    n_classes = class_weights.shape[1]
    counts = _check_counts(n_per_class, n_classes)
    random = check_random_state(random_state)

    kernels = np.concatenate(
        [random.choice(n_kernels, size=counts[c], p=class_weights[:, c]) for c in range(n_classes)]
    )
    X = random.standard_normal((len(kernels), n_features))
    for k in range(n_kernels):
        rows = kernels == k
        X[rows] = kernel_means[k] + X[rows] @ square_roots[k]
    return X, np.repeat(np.arange(n_classes, dtype=np.int64), counts)


def _finite(name: str, values: ArrayLike) -> FloatArray:
    """Return the values as floats; raise ValueError if any is not finite."""
    checked: FloatArray = check_array(
        values, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name=name
    )
    return checked


def _square_roots(covariances: ArrayLike, n_kernels: int, n_features: int) -> FloatArray:
    """Return the symmetric square roots of the covariances, shape (K, M, M)."""
    checked = _finite("covariances", covariances)
    expected = (n_kernels, n_features, n_features)
    if checked.shape != expected:
        raise ValueError(
            f"covariances must have shape {expected} for {n_kernels} means of {n_features} feature(s), "
            f"got {checked.shape}."
        )
    eigenvalues, eigenvectors = np.linalg.eigh(checked)
    deviations = np.sqrt(np.maximum(eigenvalues, 0.0))
    # The symmetric root exists for singular covariances and, unlike eigenvectors, has no arbitrary signs, so
    # a seed gives the same rows with any linear algebra library.
    roots = (eigenvectors * deviations[:, np.newaxis, :]) @ eigenvectors.swapaxes(1, 2)
    # Other matrices are not the squares of their roots.
    errors, scales = (np.abs(each).max(axis=(1, 2)) for each in (roots @ roots - checked, checked))
    for k in np.flatnonzero(errors > _ROUNDING * scales):
        raise ValueError(f"The covariance of kernel {k} is not symmetric and positive semidefinite.")
    return roots


def _check_weights(weights: ArrayLike, n_kernels: int) -> FloatArray:
    """Return the weights (K, L), with columns that sum to one up to rounding."""
    checked = _finite("weights", weights)
    if checked.ndim != 2 or checked.shape[0] != n_kernels or checked.shape[1] == 0:
        raise ValueError(
            f"weights must have shape (kernels, classes) with a row for each of the {n_kernels} means, "
            f"got {checked.shape}."
        )
    sums = checked.sum(axis=0)
    if checked.min() < 0.0 or np.abs(sums - 1.0).max() > _SUM_TOLERANCE:
        raise ValueError(
            f"Columns of weights must be probabilities, but they sum to {sums.tolist()} and the smallest "
            f"weight is {checked.min():.6g}."
        )
    return checked / sums


def _check_counts(n_per_class: int | Sequence[int] | IntArray, n_classes: int) -> IntArray:
    """Return the number of rows of each class, shape (L,)."""
    counts = np.asarray(n_per_class)
    fits = counts.dtype.kind in "iu" and counts.shape in ((), (n_classes,))
    if not fits or counts.min() < 0 or not counts.any():
        raise ValueError(
            f"n_per_class must be a number of rows, or one for each of the {n_classes} classes, "
            f"got {n_per_class!r}."
        )
    return np.broadcast_to(counts, n_classes).astype(np.int64)
