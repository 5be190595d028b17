"""What `skmix fit` was asked for, as a fitted model that the other commands can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.cli._common import note
from skmix.datasets import TableRows, class_labels
from skmix.estimators._grouping import choose_settings
from skmix.estimators._selection import Choice

_UNLABELLED = -1
# Of fewer rows any whole numbers may happen to be a count.
_LEAST_COUNTED = 10


@dataclass(frozen=True, eq=False)
class Training:
    """Rows to fit, and rows held out.

    Attributes
    ----------
    X : ndarray of shape (n, M)
        Rows to fit.
    y : ndarray of shape (n,) or None
        Their labels.
    known : ndarray of shape (n,), bool
        Which rows of X have a label.
    held_rows, held_labels : ndarrays of shape (h, M) and (h,) or None
        The rows held out.
    """

    X: NDArray[np.float64]
    y: NDArray[Any] | None
    known: NDArray[np.bool_]
    held_rows: NDArray[np.float64] | None = None
    held_labels: NDArray[Any] | None = None


def look_over(rows: TableRows) -> None:
    """Refuse a feature that has no value anywhere, and tell of one that counts the rows."""
    n_rows = len(rows.X)
    for name, column in zip(rows.feature_names, rows.X.T, strict=True):
        if np.isnan(column).all():
            raise ValueError(f"column {name!r} has no value in any row. Leave it out with --drop {name!r}.")
        whole = np.array_equal(column, np.round(column))
        if n_rows >= _LEAST_COUNTED and whole and np.ptp(column) == n_rows - 1 == len(np.unique(column)) - 1:
            note(
                f"column {name!r} numbers the rows from {column.min():.0f} to {column.max():.0f}. If that is "
                f"their name and no measurement, leave it out with --drop {name!r}."
            )


def training_rows(
    rows: TableRows, target: str | None, unlabelled: str, hold_out: float, seed: int
) -> Training:
    """Return the rows of a table to fit, with their labels.

    Parameters
    ----------
    rows : TableRows
        The table.
    target : str or None
        Column of labels.
    unlabelled : {'refuse', 'drop', 'use'}
        What becomes of rows without a label.
    hold_out : float
        Share of the labelled rows of each class to keep apart.
    seed : int
        Of the split.
    """
    if target is None or rows.labels is None:
        return Training(rows.X, None, np.ones(len(rows.X), dtype=np.bool_))
    y, known = class_labels(rows.labels, target)
    n_missing = int(np.count_nonzero(~known))
    if n_missing and unlabelled == "refuse":
        raise ValueError(
            f"column {target!r} has no label in {n_missing} of {len(y)} rows. Leave these rows out with "
            "--unlabelled drop, or learn from them too with --unlabelled use."
        )
    X = rows.X
    if unlabelled == "drop":
        X, y, known = X[known], y[known], known[known]
    if not hold_out:
        return Training(X, y, known)
    labelled = np.flatnonzero(known)
    _check_hold_out(y[labelled], hold_out)
    kept, held = train_test_split(labelled, test_size=hold_out, stratify=y[labelled], random_state=seed)
    training = np.sort(np.concatenate([kept, np.flatnonzero(~known)]))
    return Training(X[training], y[training], known[training], X[held], y[held])


def _check_hold_out(y: NDArray[Any], hold_out: float) -> None:
    """Refuse a share that does not leave every class a row on both sides."""
    classes, counts = np.unique(y, return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            f"--hold-out needs two rows of each class, and {str(classes[counts.argmin()])!r} has one. Give "
            "it another row, or leave it out."
        )
    n_held = int(np.ceil(hold_out * len(y)))
    if min(n_held, len(y) - n_held) < len(classes):
        raise ValueError(
            f"--hold-out {hold_out:g} keeps {n_held} of {len(y)} rows apart, and both parts need a row of "
            f"each of {len(classes)} classes."
        )


def fit_classifier(
    training: Training, names: Sequence[str], target: str, settings: dict[str, Any], tune: bool
) -> SharedKernelClassifier:
    """Return a classifier that knows the names of features and target.

    Parameters
    ----------
    training : Training
        Rows and labels.
    names : list of str
        Names of the features.
    target : str
        Name of the column of labels.
    settings : dict
        Parameters of the classifier; `feature_groups` and `priors` as they stand on the command line.
    tune : bool
        Whether to tune it to tell classes apart.
    """
    assert training.y is not None
    settings, choice, chosen = _choices(settings)
    classes, codes = np.unique(training.y[training.known], return_inverse=True)
    groups = settings.get("feature_groups")
    classifier = SharedKernelClassifier(
        **{
            **settings,
            "feature_groups": None if "feature_groups" in chosen else parse_groups(groups, names),
            "priors": parse_priors(settings["priors"], [str(label) for label in classes.tolist()]),
        }
    )
    everything_labelled = bool(training.known.all())
    if everything_labelled and settings["reject_below"] is not None:
        classifier.set_params(outlier_label=_outlier_label(classes))
    # Only numbers can be missing as labels, so numbers stand for the labels until the fit is done.
    numbers = np.full(len(training.y), _UNLABELLED, dtype=np.int64)
    numbers[training.known] = codes
    y = training.y if everything_labelled else numbers
    if chosen:
        choose_settings(classifier, training.X, y, choice, feature_groups="feature_groups" in chosen)
    classifier.fit(training.X, y)
    if not everything_labelled:
        classifier.classes_ = classes
        for model in classifier.models_:
            model.classes_ = classes
        classifier.set_params(outlier_label=_outlier_label(classes))
    if tune:
        classifier.tune(
            training.X[training.known], training.y[training.known], random_state=settings["random_state"]
        )
    classifier.feature_names_in_ = np.array(names, dtype=object)
    classifier.target_name_ = target
    return classifier


def fit_mixture(
    training: Training, names: Sequence[str], settings: dict[str, Any], outliers: float | None
) -> SharedKernelMixture:
    """Return a mixture that knows its features' names and, as `threshold_`, where outliers begin."""
    settings, choice, chosen = _choices(settings)
    mixture = SharedKernelMixture(**settings)
    if chosen:
        choose_settings(mixture, training.X, None, choice)
    mixture.fit(training.X)
    if outliers is not None:
        densities = np.asarray(mixture.score_samples(training.X))
        mixture.threshold_ = float(np.quantile(densities, outliers, method="inverted_cdf"))
    mixture.feature_names_in_ = np.array(names, dtype=object)
    return mixture


def _choices(settings: dict[str, Any]) -> tuple[dict[str, Any], Choice, set[str]]:
    """Return the settings that are given, what to choose, and the names of the others."""
    chosen = {
        name
        for name, value in settings.items()
        if name != "covariance_prior" and isinstance(value, str) and value == "auto"
    }
    given = {name: value for name, value in settings.items() if name not in chosen and name != "criterion"}
    return given, Choice("n_kernels" in chosen, "covariance_type" in chosen, settings["criterion"]), chosen


def _outlier_label(classes: NDArray[Any]) -> Any:
    """Return a label for outliers that is none of the classes."""
    if classes.dtype.kind in "iu":
        return -1
    label = "outlier"
    while label in classes:
        label += "_"
    return label


def parse_number(option: str, given: str | None, *, least: float, most: float, whole: bool = False) -> Any:
    """Return a number, or 'auto', from what stands on the command line."""
    if given is None or given == "auto":
        return given
    try:
        number = int(given) if whole else float(given)
    except ValueError:
        number = np.nan
    if not least <= number <= most:
        kind = "a whole number" if whole else "a number"
        bounds = f"of at least {least:g}" if most == np.inf else f"from {least:g} to {most:g}"
        raise typer.BadParameter(f"{given!r} is neither 'auto' nor {kind} {bounds}.", param_hint=option)
    return number


def parse_groups(given: str | None, names: Sequence[str]) -> list[list[int]] | str | None:
    """Return the columns of each group, given names such as ``a,b;c,d``."""
    if given is None or given == "auto":
        return given
    groups = []
    for group in given.split(";"):
        columns = []
        for name in filter(None, (part.strip() for part in group.split(","))):
            if name not in names:
                raise typer.BadParameter(
                    f"there is no feature {name!r}; there are {', '.join(names[:20])}.", param_hint="--groups"
                )
            columns.append(list(names).index(name))
        if not columns:
            raise typer.BadParameter(f"a group of {given!r} is empty.", param_hint="--groups")
        groups.append(columns)
    return groups


def parse_priors(given: str | None, labels: Sequence[str]) -> list[float] | str | None:
    """Return the prior of each class, given ``uniform`` or all of them, such as ``yes=0.1,no=0.9``."""
    if given is None or given == "uniform":
        return given
    priors = {}
    for part in given.split(","):
        label, _, number = part.rpartition("=")
        try:
            prior = float(number)
        except ValueError:
            prior = np.nan
        priors[label.strip()] = prior
        if not 0 <= prior < np.inf:
            raise typer.BadParameter(
                f"{part!r} is not of the form label=number, with a number of at least 0.",
                param_hint="--priors",
            )
    if sorted(priors) != sorted(labels):
        raise typer.BadParameter(
            f"name each class once: {', '.join(labels[:20])}; got {', '.join(priors)}.", param_hint="--priors"
        )
    return [priors[label] for label in labels]
