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
from skmix.datasets import TableRows, class_labels

_UNLABELLED = -1


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
    kept, held = train_test_split(labelled, test_size=hold_out, stratify=y[labelled], random_state=seed)
    training = np.sort(np.concatenate([kept, np.flatnonzero(~known)]))
    return Training(X[training], y[training], known[training], X[held], y[held])


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
    classes, codes = np.unique(training.y[training.known], return_inverse=True)
    classifier = SharedKernelClassifier(
        **{
            **settings,
            "feature_groups": parse_groups(settings["feature_groups"], names),
            "priors": parse_priors(settings["priors"], [str(label) for label in classes.tolist()]),
        }
    )
    everything_labelled = bool(training.known.all())
    if everything_labelled and settings["reject_below"] is not None:
        classifier.set_params(outlier_label=_outlier_label(classes))
    if everything_labelled:
        classifier.fit(training.X, training.y)
    else:
        # Only numbers can be missing as labels, so numbers stand for the labels until the fit is done.
        numbers = np.full(len(training.y), _UNLABELLED, dtype=np.int64)
        numbers[training.known] = codes
        classifier.fit(training.X, numbers)
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
    mixture = SharedKernelMixture(**settings).fit(training.X)
    if outliers is not None:
        densities = np.asarray(mixture.score_samples(training.X))
        mixture.threshold_ = float(np.quantile(densities, outliers, method="inverted_cdf"))
    mixture.feature_names_in_ = np.array(names, dtype=object)
    return mixture


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
            priors[label.strip()] = float(number)
        except ValueError:
            raise typer.BadParameter(
                f"{part!r} is not of the form label=number.", param_hint="--priors"
            ) from None
    if sorted(priors) != sorted(labels):
        raise typer.BadParameter(
            f"name each class once: {', '.join(labels[:20])}; got {', '.join(priors)}.", param_hint="--priors"
        )
    return [priors[label] for label in labels]
