"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    report,
)
from skmix.cli import _common as cli
from skmix.cli._progress import watching
from skmix.cli._tables import Data, Drop, NoHeader, check_place, read, write_model
from skmix.datasets import TableRows, class_labels
from skmix.engine.compute.blocks import Block
from skmix.estimators.decisions import novelty_threshold
from skmix.estimators.search.classifier import QUICK_FITS
from skmix.estimators.search.mixture import SEVERAL_STARTS

_of_table = partial(typer.Option, rich_help_panel="The table")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_search = partial(typer.Option, rich_help_panel="The search")

# With fewer rows, integers may be consecutive by chance.
_MIN_COUNTED = 10


@cli.app.command(
    epilog=cli.examples(
        "skmix fit flowers.csv --target species -o flowers.skmix",
        "skmix fit flowers.csv --target species --hold-out 0.25 --drop id",
        "skmix fit flowers.csv --target species --kernels 6 --covariance tied",
        'skmix fit flowers.csv --target species --groups "width,length;colour"',
        "zcat rows.csv.gz | skmix fit - --kernels 20 -o density.skmix",
    )
)
def fit(
    data: Data,
    target: Annotated[
        str | None,
        _of_table(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Column of labels; without it, an ordinary mixture of all columns.",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Model file; - is standard output.")
    ] = "model.skmix",
    drop: Drop = None,
    no_header: NoHeader = False,
    unlabelled: Annotated[
        Literal["refuse", "drop", "use"], _of_table(help="Rows without a label.")
    ] = "refuse",
    hold_out: Annotated[
        float, _of_table(help="Share of the rows to hold out for testing the model.", min=0.0, max=0.9)
    ] = 0.0,
    kernels: Annotated[
        str, _of_model(metavar="auto|N", help="Number of kernels that classes share.")
    ] = "auto",
    covariance: Annotated[
        Literal["full", "tied", "diag", "spherical", "low_rank", "auto"] | None,
        _of_model(
            help="Structure of the kernels' covariances; by default auto, and full with a number of kernels."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        _of_model(
            metavar='"a,b;c,d"|auto',
            help="Features that are independent, given the class, of those of other groups.",
        ),
    ] = None,
    priors: Annotated[
        str | None,
        _of_model(
            "--priors",
            "--prior",
            metavar="uniform|a=P,b=P",
            help="Class probabilities; by default as frequent as in the table.",
        ),
    ] = None,
    covariance_prior: Annotated[
        str,
        _of_model(
            metavar="auto|none|ROWS",
            help="Strength of the prior on covariances, in rows; auto shrinks them where rows are few.",
        ),
    ] = "auto",
    outliers: Annotated[
        float,
        _of_model(
            metavar="SHARE",
            help="Share of new rows to mark as outliers, the least likely; 0 marks none.",
            min=0.0,
            max=0.5,
        ),
    ] = 0.01,
    tune: Annotated[
        bool | None,
        _of_model(
            "--tune/--no-tune",
            help="Tune the model for classification, at the cost of its densities; by default only if "
            "kernels or covariances are chosen automatically, and it helps.",
        ),
    ] = None,
    criterion: Annotated[
        Literal["bic", "icl", "aic", "stability", "cv"] | None,
        _of_search(
            help="Criterion for automatic choices; by default cv, the prediction of held-out rows "
            "(cross-validation). bic and icl find clusters rather than the best density, stability those "
            "that both halves of the rows show."
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        _of_search(
            metavar="SECONDS",
            help="Time for automatic choices: after it, the best candidate so far is taken. By default as "
            "long as it takes.",
        ),
    ] = None,
    starts: Annotated[
        int | None,
        _of_search(
            help="Starting points; the best one wins. By default 1; when a mixture is chosen, 2.", min=1
        ),
    ] = None,
    max_passes: Annotated[
        int | None,
        _of_search(help="Largest number of passes of EM; by default 200, of a search 100.", min=1),
    ] = None,
    jobs: Annotated[int | None, _of_search(help="Threads; the model does not depend on it.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**32 - 1)] = 0,
    as_json: cli.Json = False,
) -> None:
    """Fit a model to a table.

    With --target, fits a classifier whose classes share Gaussian kernels;
    without it, an ordinary Gaussian mixture. Options that are not given are
    chosen automatically. Empty cells are missing values and need no
    preparation. The model file stores the names of the columns.

    Rows less likely than all but a share --outliers of held-out rows are
    outliers: skmix predict marks them, and in Python predict returns
    'outlier' for them, or -1 where labels are numbers.
    """
    of_classes = {"--groups": groups, "--priors": priors, "--tune": tune, "--hold-out": hold_out or None}
    for option, given in of_classes.items():
        if target is None and given is not None:
            cli.stop(f"{option} needs classes: name their column with --target.", cli.WRONG_USE)
    if tune and (groups is not None or covariance == "low_rank"):
        other = "--groups" if groups is not None else "--covariance low_rank"
        cli.stop(f"--tune does not work with {other}; leave one of them out.", cli.WRONG_USE)
    if jobs == 0:
        cli.refuse("--jobs", "must not be 0; -1 uses all cores.")
    n_kernels = _parse_number("--kernels", kernels, least=1, whole=True)
    by_others = target is not None and criterion not in (None, "cv")
    restricting = {"--kernels": n_kernels != "auto", "--covariance": covariance not in (None, "auto")}
    fixed = [option for option, given in {**restricting, "--criterion": by_others}.items() if given]
    if covariance is None:
        covariance = "auto" if n_kernels == "auto" else "full"
    if criterion not in (None, "cv") and groups is not None:
        cli.stop(f"--criterion {criterion} does not work with --groups; cv does.", cli.WRONG_USE)
    strength = None
    if covariance_prior != "none":
        strength = _parse_number("--covariance-prior", covariance_prior, least=0)
        if strength == 0:
            cli.refuse("--covariance-prior", f"{covariance_prior} is not above 0.")
    numbers = {"n_init": starts, "max_iter": max_passes}
    settings: dict[str, Any] = {
        "covariance_prior": strength,
        **{name: number for name, number in numbers.items() if number is not None},
        "n_jobs": jobs,
        "random_state": seed,
    }
    chosen = {"n_kernels": n_kernels, "covariance_type": covariance}
    if time_limit is not None:
        if not 0.0 < time_limit < np.inf:
            cli.refuse("--time-limit", f"{time_limit:g} is not a number of seconds above 0.")
        if "auto" not in (*chosen.values(), groups):
            cli.stop(
                "--time-limit is for automatic choices, but everything is given. Leave it out, or --kernels.",
                cli.WRONG_USE,
            )
    metadata: dict[str, Any] = {"target": target}
    check_place(out, reading=[data])
    with cli.guarded(), watching() as watch:
        rows = read(watch, data, target=target, drop=drop, no_header=no_header)
        _check_columns(rows)
        X, y, known, held = _training_rows(rows, target, unlabelled, hold_out, seed)
        with watch.steps("fitting", None):
            if y is not None:
                classes = np.unique(y[known].tolist())
                settings["priors"] = _parse_priors(priors, [str(label) for label in classes.tolist()])
                settings["feature_groups"] = _parse_groups(groups, rows.feature_names)
                if outliers:
                    settings |= {"reject_below": outliers, "outlier_label": _outlier_label(classes)}
            model, search = _fit(X, y, known, chosen, criterion, tune, time_limit, settings)
            if y is None and outliers:
                metadata["outlier_threshold"] = novelty_threshold(model, outliers, Block(X))
        # A search passes rows on to those of its members that take features as they are.
        members = zip(*(getattr(model, name, []) for name in ("classifiers_", "feature_maps_")), strict=True)
        same = [member for member, change in members if change is None]
        for each in (model, *same, *getattr(model, "mixtures_", [])):
            each.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        model.metadata_ = metadata
        write_model(out, model)
        described = report.describe(model)
        facts = (
            "kind",
            "features",
            "n_transformed",
            "by_rank",
            "n_components",
            "n_members",
            "target",
            "classes",
        )
        end = ("converged", "n_iter", "log_likelihood", "outlier_threshold")
        outcome = {
            "model": None if out == cli.STANDARD else out,
            "n_rows": len(X),
            "n_unlabelled": int(np.count_nonzero(~known)),
            **{name: described[name] for name in (*facts, "covariance_type", "n_parameters", *end)},
            "n_kernels": [group["n_kernels"] for group in described["groups"]],
            "shared": any(
                np.count_nonzero(kernel) > 1 for g in described["groups"] for kernel in g["weights"]
            ),
            "groups": [group["features"] for group in described["groups"]],
            "n_candidates": None if search is None else len(set(map(repr, search.cv_results_["params"]))),
            "reduction": None if search is None else search.best_params_.get("reduction"),
            "training_accuracy": None if y is None else report.evaluate(model, X[known], y[known]).accuracy,
            "held_out": held and report.evaluate(model, *held).as_dict(),
        }
        outcome["with_more_time"] = _with_more_time(outcome, search, fixed)
    if as_json and out != cli.STANDARD:
        cli.print_json(outcome)
    else:
        for line in _lines(outcome):
            cli.say(line, err=out == cli.STANDARD)


def _lines(outcome: dict[str, Any]) -> list[str]:
    """Return the result of the fit in sentences."""
    classes, numbers, held = outcome["classes"], outcome["n_kernels"], outcome["held_out"]
    lines = [f"{outcome['n_rows']} rows, {cli.counted(len(outcome['features']), 'feature')}"]
    if classes:
        shown = ", ".join(f"{each['label']} {each['n_rows']:g}" for each in classes[:10])
        lines[0] += f", {len(classes)} classes ({shown}{' ...' if len(classes) > 10 else ''})"
    if outcome["n_unlabelled"]:
        lines[0] += f", {outcome['n_unlabelled']} rows without a label"
    kernels = ", ".join(map(str, numbers)) + (" kernel" if numbers == [1] else " kernels")
    whose = ""
    if classes and len(numbers) == 1:
        whose = " shared by all classes" if outcome["shared"] else ", each of one class"
    if outcome["n_components"]:
        whose += f", in {outcome['n_components']} {outcome['reduction'] or 'components'}"
    shape = outcome["covariance_type"].replace("_", " ")
    lines.append(f"{kernels}{whose}, {shape} covariances, {outcome['n_parameters']} parameters")
    if outcome["n_transformed"]:
        how = (
            "by rank, to normal scores"
            if outcome["by_rank"]
            else "by a power (Yeo-Johnson), closer to normal"
        )
        of_all = f"{outcome['n_transformed']} of {cli.counted(len(outcome['features']), 'feature')}"
        lines.append(f"{of_all} transformed {how}")
    if outcome["n_candidates"]:
        lines.append(f"chosen among {cli.counted(outcome['n_candidates'], 'candidate')}")
        if outcome["n_members"]:
            lines[-1] += f"; the best of {outcome['n_members']} models whose probabilities are averaged"
    if len(numbers) > 1:
        lines.append("groups: " + "; ".join(", ".join(group) for group in outcome["groups"]))
    ended = "converged" if outcome["converged"] else "did not converge"
    lines.append(f"{ended} in {cli.counted(outcome['n_iter'], 'pass', 'passes')}")
    if outcome["training_accuracy"] is not None:
        share = 100 * outcome["training_accuracy"]
        lines.append(f"{share:.1f} % of the training rows are classified correctly")
    if held is not None:
        lines.append(
            f"{100 * held['accuracy']:.1f} % of {held['n_rows']} held-out rows, "
            f"log-loss {held['log_loss']:.3f}, calibration error {held['calibration_error']:.3f}"
        )
    if outcome["model"] is not None:
        lines.append(f"written into {outcome['model']}")
    if outcome["with_more_time"] is not None:
        lines.append(f"with more time: {outcome['with_more_time']}")
    return lines


def _with_more_time(outcome: dict[str, Any], search: Any, fixed: list[str]) -> str | None:
    """Return what may give a better model than this fit, in which some options fix settings.

    None after a complete search.
    """
    if search is not None and search.n_untried_:
        splits = [column for name, column in search.cv_results_.items() if name.startswith("split")]
        n_fits = np.count_nonzero(~np.isnan(splits), axis=0) if splits else 1
        typical = float(np.median(search.cv_results_["mean_fit_time"] * np.maximum(n_fits, 1)))
        # Later candidates take longer: they have more kernels, or are fitted on all folds.
        needed = search.time_limit + 2.0 * typical * search.n_untried_
        digit = 10.0 ** np.floor(np.log10(needed))
        more = cli.counted(search.n_untried_, "more candidate")
        return f"--time-limit {max(1.0, np.ceil(needed / digit) * digit):g} would try up to {more}"
    if search is None and not outcome["converged"]:
        return f"--max-passes {2 * outcome['n_iter']} would bring the fit closer to convergence"
    return f"leave out {' and '.join(fixed)}, and cross-validation chooses" if fixed else None


def _check_columns(rows: TableRows) -> None:
    """Refuse a feature without any value, and note one that looks like a row number."""
    n_rows = len(rows.X)
    for name, column in zip(rows.feature_names, rows.X.T, strict=True):
        if np.isnan(column).all():
            raise ValueError(f"column {name!r} has no value in any row. Leave it out with --drop {name!r}.")
        whole = np.array_equal(column, np.round(column))
        if n_rows >= _MIN_COUNTED and whole and np.ptp(column) == n_rows - 1 == len(np.unique(column)) - 1:
            cli.note(
                f"column {name!r} numbers the rows from {column.min():.0f} to {column.max():.0f}. If this "
                f"is an identifier and not a measurement, leave it out with --drop {name!r}."
            )


def _training_rows(
    rows: TableRows, target: str | None, unlabelled: str, hold_out: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[Any] | None, NDArray[np.bool_], tuple[Any, Any] | None]:
    """Return rows X (n, M) to fit, labels y (n,), which of them are known, and rows and labels held out.

    `unlabelled` is how to treat rows without a label: 'refuse', 'drop' or 'use'. `hold_out` is the share of
    the labelled rows of each class to hold out.
    """
    X = rows.X
    if target is None or rows.labels is None:
        return X, None, np.ones(len(X), dtype=np.bool_), None
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
        return X, y, known, None
    labelled = np.flatnonzero(known)
    classes, counts = np.unique(y[labelled], return_counts=True)
    if counts.min() < 2:
        raise ValueError(
            f"--hold-out needs two rows of each class, but {str(classes[counts.argmin()])!r} has one. Add "
            "a row of it, or leave it out."
        )
    n_held = int(np.ceil(hold_out * len(labelled)))
    if min(n_held, len(labelled) - n_held) < len(classes):
        raise ValueError(
            f"--hold-out {hold_out:g} holds out {n_held} of {len(labelled)} rows, but both parts need at "
            f"least one row of each of {len(classes)} classes."
        )
    kept, held = train_test_split(
        labelled, test_size=hold_out, stratify=y[labelled].astype(str), random_state=seed
    )
    training = np.sort(np.concatenate([kept, np.flatnonzero(~known)]))
    return X[training], y[training], known[training], (X[held], y[held])


def _fit(
    X: NDArray[np.float64],
    y: NDArray[Any] | None,
    known: NDArray[np.bool_],
    chosen: dict[str, Any],
    criterion: str | None,
    tune: bool | None,
    time_limit: float | None,
    settings: dict[str, Any],
) -> tuple[Any, Any]:
    """Return a fitted classifier, or mixture without labels, and the search if anything was 'auto'."""
    groups = settings.get("feature_groups")
    is_open = "auto" in (*chosen.values(), groups)
    common = {"time_limit": time_limit, **{name: settings[name] for name in ("n_jobs", "random_state")}}
    search: Any = None
    if is_open and y is not None and criterion in (None, "cv"):
        classifier = SharedKernelClassifier(**QUICK_FITS | settings | {"feature_groups": None})
        search = SharedKernelClassifierCV(
            classifier, **chosen, feature_groups=groups, tune="auto" if tune is None else tune, **common
        ).fit(X, y)
        # With several members or other features, the search itself is the model.
        alone = len(search.classifiers_) == 1 and search.feature_map_ is None
        return (search.classifier_ if alone else search), search
    incomplete = np.isnan(X).any(axis=1)
    if tune and incomplete.any():
        raise ValueError(
            f"--tune needs complete rows, but {incomplete.sum()} of {len(X)} rows have "
            "missing values. Leave out --tune, or --kernels and --covariance."
        )
    if is_open:
        own = SharedKernelMixture().get_params()
        given = {name: value for name, value in settings.items() if name in own}
        by = "auto" if criterion is None else "log_likelihood" if criterion == "cv" else criterion
        mixture = SharedKernelMixture(**SEVERAL_STARTS | given)
        search = SharedKernelMixtureCV(mixture, **chosen, criterion=by, **common).fit(X, y)
        if y is None:
            # With several members, the search itself is the model.
            return (search if len(search.mixtures_) > 1 else search.best_estimator_), search
        chosen = search.best_params_
    estimator: Any = SharedKernelMixture if y is None else SharedKernelClassifier
    model = estimator(**settings, **chosen).fit(X, y)
    if tune and y is not None:
        # From a list, since labels mixed with None have dtype object.
        model.tune(X[known], np.array(y[known].tolist()), random_state=settings["random_state"])
    return model, search


def _outlier_label(classes: NDArray[Any]) -> Any:
    """Return a label for outliers that differs from all classes."""
    if classes.dtype.kind in "iu":
        return -1
    label = "outlier"
    while label in classes:
        label += "_"
    return label


def _parse_number(option: str, given: str, *, least: float, whole: bool = False) -> Any:
    """Return a number, or 'auto', from the command line."""
    if given == "auto":
        return given
    try:
        number = int(given) if whole else float(given)
    except ValueError:
        number = np.nan
    if not least <= number < np.inf:
        kind = "a whole number" if whole else "a number"
        cli.refuse(option, f"{given!r} is neither 'auto' nor {kind} of at least {least:g}.")
    return number


def _parse_groups(given: str | None, names: Sequence[str]) -> list[list[int]] | str | None:
    """Return the columns of each group, given names such as ``a,b;c,d``."""
    if given is None or given == "auto":
        return given
    places = {name: place for place, name in enumerate(names)}
    groups = []
    for group in given.split(";"):
        chosen = [name for name in (part.strip() for part in group.split(",")) if name]
        unknown = [name for name in chosen if name not in places]
        if unknown:
            cli.refuse("--groups", f"there is no feature {unknown[0]!r}; there are {', '.join(names[:20])}.")
        if not chosen:
            cli.refuse("--groups", f"a group of {given!r} is empty.")
        groups.append([places[name] for name in chosen])
    return groups


def _parse_priors(given: str | None, labels: Sequence[str]) -> list[float] | str | None:
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
            cli.refuse("--priors", f"{part!r} is not of the form label=number, with a number of at least 0.")
    if sorted(priors) != sorted(labels):
        cli.refuse("--priors", f"name each class once: {', '.join(labels[:20])}; got {', '.join(priors)}.")
    return [priors[label] for label in labels]
