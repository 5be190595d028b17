"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    report,
)
from skmix.cli import _common as cli
from skmix.cli import _tables as tables
from skmix.cli._progress import Watch, watching
from skmix.cli.models import print_evaluation
from skmix.engine.compute.blocks import Block
from skmix.estimators.decisions import novelty_threshold
from skmix.estimators.holdout import Split, single_split, stratified_folds
from skmix.estimators.rows import note_rows
from skmix.estimators.search.classifier import QUICK_FITS
from skmix.estimators.search.mixture import SEVERAL_STARTS
from skmix.io import TableRows
from skmix.io.encoding import Kind, feature_names
from skmix.io.labels import class_labels, number_labels
from skmix.io.preparation import scale_in_words
from skmix.report.description import serving

_of_table = partial(typer.Option, rich_help_panel="The table")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_search = partial(typer.Option, rich_help_panel="The search")

# With fewer rows, integers may be consecutive by chance.
_MIN_COUNTED = 10
_IDENTIFIER = re.compile(r"(^|[\W_])(?i:ids?|key|index)([\W_]|$)|(Id|ID)$")
# Numbers that people write for a missing value.
_SENTINELS = {float(sign + "9" * n) for n in (2, 3, 4, 5, 6) for sign in ("-", "")} - {99.0}


@cli.app.command(
    epilog=cli.examples(
        "skmix fit flowers.csv --target species -o flowers.skmix",
        "skmix fit flowers.csv --target species --hold-out 0.25 --drop id",
        "skmix fit flowers.csv --target species --kernels 6 --covariance tied",
        'skmix fit flowers.csv --target species --feature-sets "width,length;colour"',
        "zcat rows.csv.gz | skmix fit - --kernels 20 -o density.skmix",
    )
)
def fit(
    data: tables.Data,
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
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Model file; - is standard output.",
            callback=cli.or_standard,
        ),
    ] = "model.skmix",
    drop: tables.Drop = None,
    weight: Annotated[
        str | None, _of_table(metavar="COLUMN", help="Column of weights: how many rows each row stands for.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        _of_table(
            metavar="COLUMN",
            help="Take the numbers of a column for categories; may be given several times. Text is taken for "
            "categories anyway.",
        ),
    ] = None,
    missing: tables.Missing = None,
    no_header: tables.NoHeader = False,
    sep: tables.Sep = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = None,
    compensate: tables.Compensate = None,
    transform: tables.Transform = None,
    unlabelled: Annotated[
        Literal["refuse", "drop", "use"], _of_table(help="Rows without a label.")
    ] = "refuse",
    hold_out: Annotated[
        float, _of_table(help="Share of the rows to hold out for testing the model.", min=0.0, max=0.9)
    ] = 0.0,
    folds: Annotated[
        int | None,
        _of_table(
            help="Test the model by cross-validation: predict each of so many parts of the rows by a fit to "
            "the others. The model itself is fitted to all rows.",
            min=2,
        ),
    ] = None,
    html: Annotated[
        str | None,
        _of_table(
            metavar="FILE",
            help="Write a page of what --hold-out or --folds found.",
            callback=cli.or_standard,
        ),
    ] = None,
    kernels: Annotated[
        str, _of_model(metavar="auto|N", help="Number of kernels that classes share.")
    ] = "auto",
    covariance: Annotated[
        Literal["full", "tied", "diag", "spherical", "low_rank", "auto"] | None,
        _of_model(
            help="Structure of the kernels' covariances; by default auto, and full with a number of kernels."
        ),
    ] = None,
    feature_sets: Annotated[
        str | None,
        _of_model(
            metavar='"a,b;c,d"',
            help="Features that are independent, given the class, of those of other sets.",
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
        Literal["bic", "aic", "stability", "cv"] | None,
        _of_search(
            help="Criterion for automatic choices; by default cv, the prediction of held-out rows "
            "(cross-validation). bic finds clusters rather than the best density, stability those "
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
    chosen automatically. Empty cells and words such as NA are missing values
    and need no preparation. Text with at most 50 different values is encoded,
    one feature for each category, and of two categories for the second. The
    model file stores the names and the categories of the columns.

    Rows less likely than all but a share --outliers of held-out rows are
    outliers: skmix predict marks them in a column of their own. Their label
    is that of the most probable class, as of other rows.
    """
    of_classes: dict[str, Any] = {"--feature-sets": feature_sets, "--priors": priors, "--tune": tune}
    of_classes |= {"--hold-out": hold_out or None, "--folds": folds, "--html": html}
    for option, given in of_classes.items():
        if target is None and given is not None:
            cli.stop(f"{option} needs classes: name their column with --target.", cli.WRONG_USE)
    if tune and (feature_sets is not None or covariance == "low_rank"):
        other = "--feature-sets" if feature_sets is not None else "--covariance low_rank"
        cli.stop(f"--tune does not work with {other}; leave one of them out.", cli.WRONG_USE)
    if folds is not None and hold_out:
        cli.stop("--folds and --hold-out are two ways of testing; leave one of them out.", cli.WRONG_USE)
    if html is not None and folds is None and not hold_out:
        cli.stop("--html is for what --folds or --hold-out finds; add one of them.", cli.WRONG_USE)
    if out == html == cli.STANDARD:
        cli.stop("standard output takes one of --out - and --html -.", cli.WRONG_USE)
    if jobs == 0:
        cli.refuse("--jobs", "must not be 0; -1 uses all cores.")
    n_kernels = cli.parse_number("--kernels", kernels, least=1, whole=True)
    by_others = target is not None and criterion not in (None, "cv")
    restricting = {"--kernels": n_kernels != "auto", "--covariance": covariance not in (None, "auto")}
    fixed = [option for option, given in {**restricting, "--criterion": by_others}.items() if given]
    if criterion not in (None, "cv") and feature_sets is not None:
        cli.stop(f"--criterion {criterion} does not work with --feature-sets; cv does.", cli.WRONG_USE)
    strength = None
    if covariance_prior != "none":
        strength = cli.parse_number("--covariance-prior", covariance_prior, least=0)
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
    if covariance is None:
        # What the estimator or the search takes by itself.
        del chosen["covariance_type"]
    if time_limit is not None:
        if not 0.0 < time_limit < np.inf:
            cli.refuse("--time-limit", f"{time_limit:g} is not a number of seconds above 0.")
        if "auto" not in chosen.values():
            cli.stop(
                "--time-limit is for automatic choices, but everything is given. Leave it out, or --kernels.",
                cli.WRONG_USE,
            )
    metadata: dict[str, Any] = {"target": target, **({"weight": weight} if weight else {})}
    written = tables.written(no_header, sep, decimal, encoding, missing)
    settings_of_files = tables.preparation(compensate, transform)
    for place in (out, html):
        tables.check_place(place, reading=[data])
    with cli.guarded(), watching() as watch:
        rows = tables.read(
            watch,
            data,
            target=target,
            weight=weight,
            drop=drop,
            categorical=categorical or (),
            preparation=settings_of_files,
            **written,
        )
        prepared = rows.preparation or {"transform": "none"}
        if "compensate" in prepared or prepared["transform"] != "none":
            spilt = ", compensated for spill-over" if prepared.get("compensate") else ""
            cli.note(f"values are on the scale {scale_in_words(prepared['transform'])}{spilt}.")
        _check_columns(rows)
        coded = [name for name, kind in rows.columns.items() if isinstance(kind, list)]
        if target is None and coded:
            cli.note(
                f"without --target, all columns are features. If {coded[-1]!r} is the column of labels, use "
                f"--target {coded[-1]!r}."
            )
        training, held = _training_rows(rows, target, unlabelled, hold_out, seed)
        parts = None if folds is None else _folds(training, folds, seed)
        X, y, known = training.X, training.y, training.known
        if n_kernels != "auto" and n_kernels > len(X):
            raise ValueError(f"--kernels {kernels} is more than the {len(X)} rows there are.")
        with watch.steps("fitting", None):
            if y is not None:
                classes = np.unique(y[known].tolist())
                settings["priors"] = _parse_priors(priors, [str(label) for label in classes.tolist()])
                settings["feature_sets"] = _parse_sets(feature_sets, rows.columns)
                if outliers:
                    settings["reject_below"] = outliers
            fitting = partial(
                _fit, chosen=chosen, criterion=criterion, tune=tune, time_limit=time_limit, settings=settings
            )
            model, search = fitting(training)
            if y is None and outliers:
                block = Block(X, None, training.weights)
                metadata["outlier_threshold"] = novelty_threshold(model, outliers, block)
        of_rows = {
            "feature_names_in_": np.array(rows.feature_names, dtype=object),
            "preparation_": rows.preparation,
        }
        note_rows(model, **of_rows)
        # A search passes rows on to those of its members that take features as they are.
        maps = zip(*(getattr(model, name, []) for name in ("classifiers_", "feature_maps_")), strict=True)
        for each in (*(own for own, change in maps if change is None), *getattr(model, "mixtures_", [])):
            note_rows(each, **of_rows)
        model.metadata_ = metadata
        tables.write_model(out, model)
        tested = None if held is None else held.test(model)
        by_fold: list[float] = []
        if parts is not None:
            tested, by_fold = _cross_validate(watch, fitting, training, parts)
        if html is not None and tested is not None:
            source = "standard input" if data == cli.STANDARD else Path(data).name
            title = f"{source}, {'held-out rows' if folds is None else f'{folds}-fold cross-validation'}"
            tables.write_bytes(html, report.evaluation_page(tested, title=title).encode())
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
            "n_kernels": [each["n_kernels"] for each in described["feature_sets"]],
            "n_shared": [each["n_shared"] for each in described["feature_sets"]],
            "feature_sets": [each["features"] for each in described["feature_sets"]],
            "n_candidates": None if search is None else len(set(map(repr, search.cv_results_["params"]))),
            "reduction": None if search is None else search.best_params_.get("reduction"),
            "training_accuracy": None if y is None else training.take(known).test(model).accuracy,
            "held_out": None if tested is None or folds is not None else tested.as_dict(),
            "folds": None if tested is None or folds is None else {**tested.as_dict(), "by_fold": by_fold},
        }
        outcome["with_more_time"] = _with_more_time(outcome, search, fixed)
    aside = cli.STANDARD in (out, html)
    if as_json and not aside:
        cli.print_json(outcome)
    else:
        for line in _lines(outcome):
            cli.say(line, err=aside)
        if folds is not None and tested is not None and not aside:
            cli.say()
            print_evaluation(tested)


def _lines(outcome: dict[str, Any]) -> list[str]:
    """Return the result of the fit in sentences."""
    classes, numbers, held = outcome["classes"], outcome["n_kernels"], outcome["held_out"]
    lines = [f"{outcome['n_rows']} rows, {cli.counted(len(outcome['features']), 'feature')}"]
    if classes:
        sizes = {each["n_rows"] for each in classes}
        shown = ", ".join(f"{each['label']} {cli.count(each['n_rows'])}" for each in classes[:10])
        shown += " ..." if len(classes) > 10 else ""
        if len(sizes) == 1:
            shown = f"{cli.count(sizes.pop())} rows each"
        lines[0] += f", {len(classes)} classes ({shown})"
    if outcome["n_unlabelled"]:
        lines[0] += f", {outcome['n_unlabelled']} rows without a label"
    kernels = ", ".join(map(str, numbers)) + (" kernel" if numbers == [1] else " kernels")
    whose = f", {serving(numbers, outcome['n_shared'])}" if len(classes) > 1 else ""
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
        lines.append("feature sets: " + "; ".join(map(", ".join, outcome["feature_sets"])))
    ended = "converged" if outcome["converged"] else "did not converge"
    lines.append(f"{ended} in {cli.counted(outcome['n_iter'], 'pass', 'passes')}")
    if outcome["training_accuracy"] is not None:
        share = 100 * outcome["training_accuracy"]
        lines.append(f"{share:.1f} % of the training rows are classified correctly")
    if held is not None:
        lines.append(
            f"{100 * held['accuracy']:.1f} % of {cli.count(held['n_rows'])} held-out rows, "
            f"log-loss {held['log_loss']:.3f}, calibration error {held['calibration_error']:.3f}"
        )
    if outcome["folds"] is not None:
        shares = [100 * share for share in outcome["folds"]["by_fold"]]
        lines.append(
            f"{100 * outcome['folds']['accuracy']:.1f} % by {len(shares)}-fold cross-validation "
            f"({min(shares):.1f} to {max(shares):.1f} %), log-loss {outcome['folds']['log_loss']:.3f}"
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
    """Refuse a feature without any value, and note those that look like identifiers or need attention."""
    n_rows = len(rows.X)
    if not n_rows:
        raise ValueError("the table has column names but no rows.")
    places = {name: place for place, name in enumerate(rows.feature_names)}
    for name in (name for name, kind in rows.columns.items() if kind is None):
        column = rows.X[:, places[name]]
        known = column[~np.isnan(column)]
        if not len(known):
            raise ValueError(f"column {name!r} has no value in any row. Leave it out with --drop {name!r}.")
        least, most = known.min(), known.max()
        remedy = f"leave it out with --drop {name!r}."
        if least == most:
            cli.note(
                f"column {name!r} is {least:g} in all rows that have a value. It carries no "
                f"information: {remedy}"
            )
            continue
        whole = len(known) >= _MIN_COUNTED and np.array_equal(known, np.round(known))
        if whole and len(known) == n_rows and most - least == n_rows - 1 == len(np.unique(known)) - 1:
            cli.note(
                f"column {name!r} numbers the rows from {least:.0f} to {most:.0f}. If this "
                f"is an identifier and not a measurement, {remedy}"
            )
        elif whole and _IDENTIFIER.search(name) and len(np.unique(known)) == len(known):
            cli.note(
                f"column {name!r} has a different whole number in every row. If this is an identifier and "
                f"not a measurement, {remedy}"
            )
        for value in {least, most} & _SENTINELS:
            others = known[known != value]
            if np.abs(others - value).min() > np.ptp(others):
                cli.note(
                    f"column {name!r} is {value:g} in {cli.counted(len(known) - len(others), 'row')}, far "
                    f"from all other values. If that stands for a missing value, add --missing {value:g}."
                )


@dataclass(frozen=True)
class _Rows:
    """Rows to fit or to test a model with."""

    X: NDArray[np.float64]  # (n, M)
    y: Any  # (n,): labels, None for a row without one; or None
    known: NDArray[np.bool_]  # (n,): which rows have a label
    weights: NDArray[np.float64] | None  # (n,)

    def take(self, chosen: NDArray[Any]) -> _Rows:
        """Return some of the rows."""
        y, weights = (None if each is None else each[chosen] for each in (self.y, self.weights))
        return _Rows(self.X[chosen], y, self.known[chosen], weights)

    def test(self, model: Any) -> report.Evaluation:
        """Return the evaluation of a classifier on the rows, which have labels."""
        return report.evaluate(model, self.X, self.y, self.weights)


def _training_rows(
    rows: TableRows, target: str | None, unlabelled: str, hold_out: float, seed: int
) -> tuple[_Rows, _Rows | None]:
    """Return rows to fit, and rows held out.

    `unlabelled` is how to treat rows without a label: 'refuse', 'drop' or 'use'. `hold_out` is the share of
    the labelled rows of each class to hold out.
    """
    if target is None or rows.labels is None:
        return _Rows(rows.X, None, np.ones(len(rows.X), dtype=np.bool_), rows.weights), None
    y, known = _with_minus_one(*class_labels(rows.labels, target))
    n_missing = int(np.count_nonzero(~known))
    if n_missing and unlabelled == "refuse":
        raise ValueError(
            f"column {target!r} has no label in {n_missing} of {len(y)} rows. Leave these rows out with "
            "--unlabelled drop, or learn from them too with --unlabelled use."
        )
    if n_missing and unlabelled == "use":
        y = y.astype(object)
        y[~known] = None
    every = _Rows(rows.X, y, known, rows.weights)
    if unlabelled == "drop":
        every = every.take(known)
    every = _weighted(every)
    if not hold_out:
        return every, None
    codes = _codes(every, "--hold-out")
    n_classes, n_labelled = int(codes.max()) + 1, int(np.count_nonzero(codes >= 0))
    n_held = int(np.ceil(hold_out * n_labelled))
    if min(n_held, n_labelled - n_held) < n_classes:
        raise ValueError(
            f"--hold-out {hold_out:g} holds out {n_held} of {n_labelled} rows, but both parts need at "
            f"least one row of each of {n_classes} classes."
        )
    training, held = single_split(codes, n_held, seed)
    return every.take(training), every.take(held)


def _with_minus_one(y: NDArray[Any], known: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return labels (n,), and which rows have one (n,), after a look at the meaning of -1.

    -1 marks rows without a label, as in Python, unless empty cells mark some. Where -1 may as well be a
    class, Python refuses the labels, and this function makes text of them.
    """
    if not known.all():
        return y, known
    try:
        return y, number_labels(y)[1] >= 0
    except ValueError:
        return y.astype(str), known


def _weighted(rows: _Rows) -> _Rows:
    """Leave out rows of weight zero; refuse to leave out all rows of a class."""
    if rows.weights is None:
        return rows
    labels = rows.y[rows.known].astype(str)
    lost = np.setdiff1d(labels, labels[rows.weights[rows.known] > 0.0])
    if len(lost):
        raise ValueError(
            f"class {str(lost[0])!r} has no row with a weight above 0. Give one of its rows a weight, or "
            "leave the class out."
        )
    return rows.take(rows.weights > 0.0)


def _codes(rows: _Rows, option: str) -> NDArray[np.int64]:
    """Return the classes (n,) of rows, -1 for those without a label; each class must have two rows."""
    codes = np.full(len(rows.X), -1)
    classes, codes[rows.known] = np.unique(rows.y[rows.known].astype(str), return_inverse=True)
    counts = np.bincount(codes[rows.known])
    if counts.min() < 2:
        raise ValueError(
            f"{option} needs two rows of each class, but {str(classes[counts.argmin()])!r} has one. Add "
            "a row of it, or leave it out."
        )
    return codes


@dataclass(frozen=True)
class _HeldOut:
    """Predictions of several models, each of rows that it was not fitted to, as those of one."""

    classes_: NDArray[Any]
    probabilities: NDArray[np.float64]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, L) of all rows."""
        return self.probabilities


def _folds(rows: _Rows, n_folds: int, seed: int) -> list[Split]:
    """Return the training rows and the held-out rows of each fold; rows without a label always train."""
    codes = _codes(rows, "--folds")
    most = np.bincount(codes[rows.known]).max()
    if most < n_folds:
        raise ValueError(f"--folds {n_folds} needs more rows: no class has more than {most}.")
    return stratified_folds(codes, n_folds, seed)


def _cross_validate(
    watch: Watch, fitting: Any, rows: _Rows, parts: list[Split]
) -> tuple[report.Evaluation, list[float]]:
    """Return the evaluation of held-out predictions of all labelled rows, and the accuracy in each fold."""
    probabilities: Any = None
    accuracies = []
    with watch.steps("cross-validating", len(parts)) as report_step:
        for training, held in parts:
            model, _ = fitting(rows.take(training))
            tested = rows.take(held)
            accuracies.append(tested.test(model).accuracy)
            if probabilities is None:
                probabilities = np.empty((len(rows.X), len(model.classes_)))
            probabilities[held] = model.predict_proba(tested.X)
            report_step()
    return rows.take(rows.known).test(_HeldOut(model.classes_, probabilities[rows.known])), accuracies


def _fit(
    rows: _Rows,
    *,
    chosen: dict[str, Any],
    criterion: str | None,
    tune: bool | None,
    time_limit: float | None,
    settings: dict[str, Any],
) -> tuple[Any, Any]:
    """Return a fitted classifier, or mixture without labels, and the search if anything was 'auto'."""
    X, y, weights = rows.X, rows.y, rows.weights
    groups = settings.get("feature_sets")
    is_open = "auto" in chosen.values()
    common = {"time_limit": time_limit, **{name: settings[name] for name in ("n_jobs", "random_state")}}
    search: Any = None
    if is_open and y is not None and criterion in (None, "cv"):
        classifier = SharedKernelClassifier(**QUICK_FITS | settings | {"feature_sets": None})
        search = SharedKernelClassifierCV(
            classifier, **chosen, feature_sets=groups, tune="auto" if tune is None else tune, **common
        ).fit(X, y, sample_weight=weights)
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
        search = SharedKernelMixtureCV(mixture, **chosen, criterion=by, **common)
        search.fit(X, y, sample_weight=weights)
        if y is None:
            # With several members, the search itself is the model.
            return (search if len(search.mixtures_) > 1 else search.best_estimator_), search
        chosen = search.best_params_
    estimator: Any = SharedKernelMixture if y is None else SharedKernelClassifier
    model = estimator(**settings, **chosen).fit(X, y, sample_weight=weights)
    if tune and y is not None:
        labelled = rows.take(rows.known)
        # From a list, since labels mixed with None have dtype object.
        labels = np.array(y[rows.known].tolist())
        seed = settings["random_state"]
        model.tune(labelled.X, labels, sample_weight=labelled.weights, random_state=seed)
    return model, search


def _parse_sets(given: str | None, columns: Mapping[str, Kind]) -> list[list[int]] | None:
    """Return the features of each set, given names of columns such as ``a,b;c,d``."""
    if given is None:
        return None
    places: dict[str, list[int]] = {}
    names, n_features = list(columns), 0
    for name, kind in columns.items():
        places[name] = [n_features + i for i in range(len(feature_names({name: kind})))]
        n_features += len(places[name])
    sets = []
    for columns_of_set in given.split(";"):
        chosen = [name for name in (part.strip() for part in columns_of_set.split(",")) if name]
        unknown = [name for name in chosen if name not in places]
        if unknown:
            cli.refuse(
                "--feature-sets", f"there is no feature {unknown[0]!r}; there are {', '.join(names[:20])}."
            )
        if not chosen:
            cli.refuse("--feature-sets", f"a set of {given!r} is empty.")
        sets.append([place for name in chosen for place in places[name]])
    return sets


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
