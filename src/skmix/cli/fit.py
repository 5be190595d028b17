"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching

if TYPE_CHECKING:
    from skmix.io.encoding import Kind

_of_table = partial(typer.Option, rich_help_panel="The table")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_search = partial(typer.Option, rich_help_panel="The search")
# What JSON has of a model's description.
_DESCRIBED = (
    *("kind", "features", "n_transformed", "by_rank", "n_components", "n_members", "target", "classes"),
    *("covariance_type", "n_parameters", "converged", "n_iter", "log_likelihood", "outlier_threshold"),
)


@cli.app.command(
    epilog=cli.examples(
        "skmix fit flowers.csv --target species -o flowers.skmix",
        "skmix fit flowers.csv --target species --hold-out 0.25 --drop id",
        "skmix fit flowers.csv --target species --kernels 6 --covariance tied",
        'skmix fit flowers.csv --target species --feature-sets "width,length;colour"',
        "zcat rows.csv.gz | skmix fit - --kernels 20 -o density.skmix",
    )
)
@options.with_text
def fit(
    data: options.Data,
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
            callback=options.or_standard,
        ),
    ] = "model.skmix",
    drop: options.Drop = None,
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
    *,
    text: dict[str, Any],
    compensate: options.Compensate = None,
    transform: options.Transform = None,
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
            callback=options.or_standard,
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
            metavar="uniform|a=P,b=P",
            help="Class probabilities; by default as frequent as in the table.",
        ),
    ] = None,
    outliers: Annotated[
        float,
        _of_model(
            metavar="SHARE",
            help="Share of new rows to mark as outliers, the least likely; 0 marks none.",
            min=0.0,
            max=0.5,
        ),
    ] = 0.01,
    criterion: Annotated[
        Literal["bic", "stability", "cv"] | None,
        _of_search(
            help="What chooses a mixture without classes; by default cv, the density of held-out rows "
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
    jobs: options.Jobs = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
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
    import numpy as np

    from skmix import report
    from skmix.cli import _tables as tables
    from skmix.estimators.decisions import novelty_threshold
    from skmix.estimators.holdout import rows_to_divide, single_split, stratified_folds
    from skmix.estimators.search._base import note_members, saved_part
    from skmix.io.labels import number_labels

    of_classes: dict[str, Any] = {"--feature-sets": feature_sets, "--priors": priors, "--folds": folds}
    for option, given in {**of_classes, "--hold-out": hold_out or None, "--html": html}.items():
        if target is None and given is not None:
            cli.stop(f"{option} needs classes: name their column with --target.", cli.WRONG_USE)
    if target is not None and criterion is not None:
        cli.stop(
            "--criterion cannot be combined with --target: classes are judged by cross-validation.",
            cli.WRONG_USE,
        )
    if folds is not None and hold_out:
        cli.stop("--folds cannot be combined with --hold-out: both test the model.", cli.WRONG_USE)
    if html is not None and folds is None and not hold_out:
        cli.stop("--html is for what --folds or --hold-out finds; add one of them.", cli.WRONG_USE)
    if out == html == cli.STANDARD:
        cli.stop("standard output takes one of --out - and --html -.", cli.WRONG_USE)
    chosen: dict[str, Any] = {"n_kernels": options.parse_number("--kernels", kernels)}
    if covariance is not None:
        chosen["covariance_type"] = covariance
    if time_limit is not None and not 0.0 < time_limit < math.inf:
        cli.refuse("--time-limit", f"{time_limit:g} is not a number of seconds above 0.")
    if time_limit is not None and "auto" not in chosen.values():
        cli.stop("--time-limit cannot be combined with --kernels: nothing is searched for.", cli.WRONG_USE)
    settings: dict[str, Any] = {"covariance_prior": "auto", "n_jobs": jobs, "random_state": seed}
    numbers = {"n_init": starts, "max_iter": max_passes}
    settings |= {name: number for name, number in numbers.items() if number is not None}
    preparation = options.parse_preparation(compensate, transform)
    for place in (out, html):
        tables.check_place(place, reading=[data])
    with cli.guarded(), watching() as watch:
        source, rows = tables.read_to_fit(
            watch,
            data,
            target=target,
            weight=weight,
            drop=drop or (),
            unlabelled=unlabelled,
            text=text | {"categorical": categorical or ()},
            preparation=preparation,
        )
        codes: Any = None
        training: Any = slice(None)
        if rows.y is not None:
            classes, codes = number_labels(rows.y)
            settings["priors"] = options.parse_priors(priors, [str(label) for label in classes.tolist()])
            settings["feature_sets"] = _parse_sets(feature_sets, tables.kinds_of(source))
            settings["reject_below"] = outliers or None
            if (hold_out or folds) and not len(rows_to_divide(codes)):
                raise ValueError("no row can be held out: every class has one row.")
        if hold_out:
            n_held = math.ceil(hold_out * np.count_nonzero(codes >= 0))
            training, held = single_split(codes, n_held, seed)

        def some(of: Any) -> list[Any]:
            y = None if rows.y is None else rows.y[of]
            if y is not None and np.all(codes[of] >= 0):
                y = classes[codes[of]]
            return [rows.X[of], y, None if rows.weights is None else rows.weights[of]]

        estimator = _estimator(chosen, criterion, time_limit, settings, with_classes=target is not None)
        with watch.steps("fitting", None):
            own = some(training)
            estimator.fit(own[0], own[1], sample_weight=own[2])
            model = saved_part(estimator)
            model.metadata_ = {"target": target, **({"weight": weight} if weight else {})}
            if target is None and outliers:
                model.threshold_ = novelty_threshold(model, outliers, rows)
            names = np.array(source.feature_names, dtype=object)
            note_members(model, feature_names_in_=names, preparation_=source.preparation)
        tables.write_model(out, model)
        tested: Any = report.evaluate(model, *some(held)) if hold_out else None
        if folds is not None:
            splits = stratified_folds(codes, folds, seed)
            tested, by_fold = report.cross_validate(estimator, *some(slice(None)), splits=splits)
        if html is not None:
            by = "held-out rows" if folds is None else f"{len(by_fold)}-fold cross-validation"
            page = report.evaluation_page(tested, title=f"{tables.name_of(data)}, {by}")
            tables.write_bytes(html, page.encode())
        labelled = training if codes is None else np.arange(len(rows.X))[training][codes[training] >= 0]
        outcome = {
            "model": None if out == cli.STANDARD else out,
            "n_rows": len(own[0]),
            "n_unlabelled": 0 if codes is None else int(np.count_nonzero(codes[training] < 0)),
            **_description(model, estimator),
            "training_accuracy": None if target is None else report.evaluate(model, *some(labelled)).accuracy,
            "held_out": tested.as_dict() if hold_out else None,
            "folds": None if folds is None else {**tested.as_dict(), "by_fold": by_fold},
        }
    aside = cli.STANDARD in (out, html)
    if as_json and not aside:
        printing.print_json(outcome)
    else:
        printing.print_fit(outcome, err=aside)
        if folds is not None and not aside:
            printing.say()
            printing.print_evaluation(tested)


def _description(model: Any, estimator: Any) -> dict[str, Any]:
    """Return what JSON has of a model, and of the estimator that found it."""
    from skmix import report

    described, results = report.describe(model), getattr(estimator, "cv_results_", None)
    sets = described["feature_sets"]
    return {
        **{name: described[name] for name in _DESCRIBED},
        **{name: [each[name] for each in sets] for name in ("n_kernels", "n_shared")},
        "feature_sets": [each["features"] for each in sets],
        "n_candidates": None if results is None else len(set(map(repr, results["params"]))),
        "n_untried": getattr(estimator, "n_untried_", None),
        "reduction": getattr(estimator, "best_params_", {}).get("reduction"),
    }


def _estimator(
    chosen: dict[str, Any],
    criterion: str | None,
    time_limit: float | None,
    settings: dict[str, Any],
    *,
    with_classes: bool,
) -> Any:
    """Return an estimator to fit: a search if anything that is `chosen` is 'auto'."""
    import skmix
    from skmix.estimators.search.classifier import QUICK_FITS
    from skmix.estimators.search.mixture import SEVERAL_STARTS

    single: Any = skmix.SharedKernelClassifier if with_classes else skmix.SharedKernelMixture
    if "auto" not in chosen.values():
        return single(**settings, **chosen)
    common = {"time_limit": time_limit, **{name: settings[name] for name in ("n_jobs", "random_state")}}
    if with_classes:
        classifier = single(**QUICK_FITS | settings | {"feature_sets": None})
        sets = settings["feature_sets"]
        return skmix.SharedKernelClassifierCV(classifier, **chosen, feature_sets=sets, **common)
    by: Any = {None: "auto", "cv": "log_likelihood"}.get(criterion, criterion)
    return skmix.SharedKernelMixtureCV(single(**SEVERAL_STARTS | settings), **chosen, criterion=by, **common)


def _parse_sets(given: str | None, columns: Mapping[str, Kind]) -> list[list[int]] | None:
    """Return the features of each set, given names of columns such as ``a,b;c,d``."""
    from skmix.io.encoding import feature_names

    if given is None:
        return None
    places: dict[str, list[int]] = {}
    for name, kind in columns.items():
        start = sum(map(len, places.values()))
        places[name] = list(range(start, start + len(feature_names({name: kind}))))
    sets = []
    for part in given.split(";"):
        chosen = options.parse_names("--feature-sets", part)
        unknown = [name for name in chosen if name not in places]
        if unknown:
            there = ", ".join(list(columns)[:20])
            cli.refuse("--feature-sets", f"there is no feature {unknown[0]!r}; there are {there}.")
        sets.append([place for name in chosen for place in places[name]])
    return sets
