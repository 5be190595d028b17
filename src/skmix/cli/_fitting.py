"""What `skmix fit` does between the table and the model file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
)
from skmix.cli._common import note
from skmix.datasets import TableRows, class_labels

# With fewer rows any whole numbers may happen to be consecutive.
_MIN_COUNTED = 10


@dataclass(frozen=True, eq=False)
class Training:
    """Rows X (n, M) to fit with labels y (n,), of which some may be None, and rows held out."""

    X: NDArray[np.float64]
    y: NDArray[Any] | None
    known: NDArray[np.bool_]
    held_rows: NDArray[np.float64] | None = None
    held_labels: NDArray[Any] | None = None


@dataclass(frozen=True)
class Choices:
    """What the user has chosen, or left open by 'auto'; `tune` None leaves tuning to the search."""

    n_kernels: Any
    covariance_type: str
    feature_groups: Any
    criterion: str
    tune: bool | None

    @property
    def open(self) -> bool:
        """Whether anything has to be chosen."""
        choices = (self.n_kernels, self.covariance_type, self.feature_groups)
        return any(isinstance(each, str) and each == "auto" for each in choices)


def check_columns(rows: TableRows) -> None:
    """Refuse a feature without any value, and note one that numbers the rows."""
    n_rows = len(rows.X)
    for name, column in zip(rows.feature_names, rows.X.T, strict=True):
        if np.isnan(column).all():
            raise ValueError(f"column {name!r} has no value in any row. Leave it out with --drop {name!r}.")
        whole = np.array_equal(column, np.round(column))
        if n_rows >= _MIN_COUNTED and whole and np.ptp(column) == n_rows - 1 == len(np.unique(column)) - 1:
            note(
                f"column {name!r} numbers the rows from {column.min():.0f} to {column.max():.0f}. If this "
                f"is an identifier and not a measurement, leave it out with --drop {name!r}."
            )


def training_rows(
    rows: TableRows, target: str | None, unlabelled: str, hold_out: float, seed: int
) -> Training:
    """Return the rows of a table to fit, with their labels.

    `unlabelled` says what becomes of rows without a label: 'refuse', 'drop' or 'use'. `hold_out` is the share
    of the labelled rows of each class to keep apart.
    """
    if target is None or rows.labels is None:
        return Training(rows.X, None, np.ones(len(rows.X), dtype=np.bool_))
    X = rows.X
    y, known = class_labels(rows.labels, target)
    n_missing = int(np.count_nonzero(~known))
    if n_missing and unlabelled == "refuse":
        raise ValueError(
            f"column {target!r} has no label in {n_missing} of {len(y)} rows. Leave these rows out with "
            "--unlabelled drop, or learn from them too with --unlabelled use."
        )
    if unlabelled == "drop":
        X, y, known = X[known], y[known], known[known]
    elif n_missing:
        y = y.astype(object)
        y[~known] = None
    if not hold_out:
        return Training(X, y, known)
    labelled = np.flatnonzero(known)
    classes, counts = np.unique(y[labelled], return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            f"--hold-out needs two rows of each class, and {str(classes[counts.argmin()])!r} has one. Give "
            "it another row, or leave it out."
        )
    n_held = int(np.ceil(hold_out * len(labelled)))
    if min(n_held, len(labelled) - n_held) < len(classes):
        raise ValueError(
            f"--hold-out {hold_out:g} keeps {n_held} of {len(labelled)} rows apart, and both parts need a "
            f"row of each of {len(classes)} classes."
        )
    kept, held = train_test_split(
        labelled, test_size=hold_out, stratify=y[labelled].astype(str), random_state=seed
    )
    training = np.sort(np.concatenate([kept, np.flatnonzero(~known)]))
    return Training(X[training], y[training], known[training], X[held], y[held])


def fit_classifier(training: Training, choices: Choices, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return a fitted classifier, and the search that chose its settings if anything was open."""
    X, y, known = training.X, training.y, training.known
    assert y is not None
    search: Any = None
    chosen = {"n_kernels": choices.n_kernels, "covariance_type": choices.covariance_type}
    classifier = SharedKernelClassifier(**settings)
    if choices.open and choices.criterion == "cv":
        search = SharedKernelClassifierCV(
            classifier,
            **chosen,
            feature_groups=choices.feature_groups,
            tune="auto" if choices.tune is None else choices.tune,
            n_jobs=settings["n_jobs"],
            random_state=settings["random_state"],
        ).fit(X, y)
        # A search that reduces the features first is a model of its own.
        return (search.classifier_ if search.projection_ is None else search), search
    if choices.tune and np.isnan(X).any():
        raise ValueError(
            f"--tune needs rows without missing values, and {int(np.isnan(X).any(axis=1).sum())} of {len(X)} "
            "rows have some. Leave --kernels and --covariance open, or leave --tune out."
        )
    if choices.open:
        search = _density_search(choices, settings).fit(X, y)
        chosen = search.best_params_
    classifier.set_params(**chosen, feature_groups=choices.feature_groups).fit(X, y)
    if choices.tune:
        # From a list, labels beside which there were some None have their own type again.
        classifier.tune(X[known], np.array(y[known].tolist()), random_state=settings["random_state"])
    return classifier, search


def fit_mixture(training: Training, choices: Choices, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return a fitted mixture, and the search that chose its settings if anything was open."""
    if choices.open:
        search = _density_search(choices, settings).fit(training.X)
        return search.best_estimator_, search
    chosen = {"n_kernels": choices.n_kernels, "covariance_type": choices.covariance_type}
    return SharedKernelMixture(**settings, **chosen).fit(training.X), None


def _density_search(choices: Choices, settings: dict[str, Any]) -> SharedKernelMixtureCV:
    """Return the search for kernels and covariances by a criterion of densities."""
    own = SharedKernelMixture().get_params()
    return SharedKernelMixtureCV(
        SharedKernelMixture(**{name: value for name, value in settings.items() if name in own}),
        n_kernels=choices.n_kernels,
        covariance_type=choices.covariance_type,
        criterion="log_likelihood" if choices.criterion == "cv" else choices.criterion,
        n_jobs=settings["n_jobs"],
        random_state=settings["random_state"],
    )


def outlier_label(classes: NDArray[Any]) -> Any:
    """Return a label for outliers that is none of the classes."""
    if classes.dtype.kind in "iu":
        return -1
    label = "outlier"
    while label in classes:
        label += "_"
    return label


def parse_number(option: str, given: str, *, least: float, whole: bool = False) -> Any:
    """Return a number, or 'auto', from the command line."""
    if given == "auto":
        return given
    try:
        number = int(given) if whole else float(given)
    except ValueError:
        number = np.nan
    if not least <= number < np.inf:
        kind = "a whole number" if whole else "a number"
        raise typer.BadParameter(
            f"{given!r} is neither 'auto' nor {kind} of at least {least:g}.", param_hint=option
        )
    return number


def parse_groups(given: str | None, names: Sequence[str]) -> list[list[int]] | str | None:
    """Return the columns of each group, given names such as ``a,b;c,d``."""
    if given is None or given == "auto":
        return given
    places = {name: place for place, name in enumerate(names)}
    groups = []
    for group in given.split(";"):
        chosen = [name for name in (part.strip() for part in group.split(",")) if name]
        unknown = [name for name in chosen if name not in places]
        if unknown:
            raise typer.BadParameter(
                f"there is no feature {unknown[0]!r}; there are {', '.join(names[:20])}.",
                param_hint="--groups",
            )
        if not chosen:
            raise typer.BadParameter(f"a group of {given!r} is empty.", param_hint="--groups")
        groups.append([places[name] for name in chosen])
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
