"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

import math
import time
import warnings
from functools import partial
from typing import Annotated, Any, Literal

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import count, counted, print_facts, print_json, say
from skmix.cli._progress import watching

_table = partial(options.option, panel="The table")
_model = partial(options.option, panel="The model")
_test = partial(options.option, panel="The test")
_search = partial(options.option, panel="The search")

Target = Annotated[str | None, _table("COLUMN", "Column of labels; none for a mixture.", "--target", "-t")]
Out = Annotated[
    str | None,
    options.file("Model file; by default a new one, model.skmix. - is standard output.", "--out", "-o"),
]
Weight = Annotated[str | None, _table("COLUMN", "Column of weights: how many rows each row stands for.")]
Categorical = Annotated[
    list[str] | None, _table("COLUMN", "Column of numbers that are categories; can be repeated.")
]
Unlabelled = Annotated[
    Literal["refuse", "drop", "use"], _table(None, "What to do with rows without a label.")
]
Folds = Annotated[
    int | None, _test("N", "Test by cross-validation in N parts; the model is fitted to all rows.", min=2)
]
HoldOut = Annotated[
    float | None,
    _test(
        "SHARE", "Test by a second fit without a share of the rows, beside that to all.", min=0.01, max=0.9
    ),
]
Page = Annotated[
    str | None, options.file("Write a page of what --folds or --hold-out found.", panel="The test")
]
Kernels = Annotated[
    str, _model("auto|N", "Number of kernels that classes share; auto lets cross-validation choose (slower).")
]
Covariance = Annotated[
    Literal["full", "tied", "diag", "spherical", "auto"] | None,
    _model("TYPE", "full, tied, diag, spherical or auto; by default auto, or full if --kernels is a number."),
]
Outliers = Annotated[
    float, _model("SHARE", "Share of new rows to mark as outliers; 0 marks none.", min=0.0, max=0.5)
]
Criterion = Annotated[
    Literal["bic", "cv"] | None,
    _search(
        None,
        "What chooses a mixture: the density of held-out rows (cv, the default), or the number of clusters "
        "(bic).",
    ),
]
TimeLimit = Annotated[
    float | None,
    _search("SECONDS", "Time for everything, the fits of --folds too: searches then take the best so far."),
]


@cli.app.command(
    epilog=cli.examples(
        "skmix fit flowers.csv --target species -o flowers.skmix",
        "skmix fit flowers.csv -t species --drop id --folds 5 --html flowers.html",
        "skmix fit flowers.csv --target species --kernels 6 --covariance tied",
        "zcat rows.csv.gz | skmix fit - --kernels 20 -o density.skmix",
    )
)
@options.with_text
def fit(
    data: options.Data,
    target: Target = None,
    out: Out = None,
    drop: options.Drop = None,
    weight: Weight = None,
    categorical: Categorical = None,
    errors: options.Errors = None,
    *,
    text: dict[str, Any],
    compensate: options.Compensate = None,
    transform: options.Transform = None,
    damaged: options.Damaged = "refuse",
    unlabelled: Unlabelled = "refuse",
    folds: Folds = None,
    hold_out: HoldOut = None,
    html: Page = None,
    kernels: Kernels = "auto",
    covariance: Covariance = None,
    outliers: Outliers = 0.01,
    criterion: Criterion = None,
    time_limit: TimeLimit = None,
    jobs: options.Jobs = -1,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Fit a model to a table.

    With --target, fits a classifier whose classes share Gaussian kernels;
    without it, an ordinary Gaussian mixture. Settings that are not given are
    chosen automatically. Empty cells, and in text files words such as NA, are
    missing values.
    Text columns are one-hot encoded; a two-valued column becomes one 0/1 feature,
    and of more than 50 values the most frequent are kept, the others being one.
    Dates become numbers of days. Rows without any value are left out. The model
    file keeps the names and categories of the columns, and how the table is
    written.

    Rows that are less likely than all but a share --outliers of held-out rows
    are outliers. skmix predict marks them in a column of their own.
    """
    for option, value in {"--folds": folds, "--hold-out": hold_out, "--html": html}.items():
        if target is None and value is not None:
            cli.stop(f"{option} needs classes: name their column with --target.")
    if target is not None and criterion is not None:
        cli.stop("--criterion cannot be combined with --target: classes are judged by cross-validation.")
    if folds is not None and hold_out is not None:
        cli.stop("--folds cannot be combined with --hold-out: both test the model.")
    if errors is not None and target is not None and kernels == "auto":
        cli.stop("--errors with --target needs --kernels N: the search for a classifier takes no errors.")
    test = folds or hold_out
    if html is not None and test is None:
        cli.stop("--html is for what --folds or --hold-out finds: add --folds N.")
    if out == html == cli.STANDARD:
        cli.stop("--out - and --html - both write to standard output; choose one.")
    chosen: dict[str, Any] = {"n_kernels": options.parse_number("--kernels", kernels) or "auto"}
    if covariance is not None:
        chosen["covariance_type"] = covariance
    is_search = "auto" in chosen.values()
    if time_limit is not None and not 0.0 < time_limit < math.inf:
        cli.refuse("--time-limit", f"{time_limit:g} is not a number of seconds above 0.")
    if time_limit is not None and not is_search:
        cli.stop("--time-limit cannot be combined with --kernels: nothing is searched for.")
    preparation = options.parse_preparation(compensate, transform) | {"damaged": damaged}
    cli.check_inputs(data)
    from sklearn.exceptions import ConvergenceWarning

    import skmix
    from skmix import report
    from skmix.cli import _files as files
    from skmix.cli import _tables as tables
    from skmix.cli.evaluate import print_evaluation
    from skmix.search.base import saved_part

    path_out = out or "model.skmix"
    default = "-o" if out is None else None
    files.check_places({"-o": path_out, "--html": html}, reading=[data], default=default)
    settings: dict[str, Any] = {"n_jobs": jobs, "random_state": seed}
    estimator: Any = skmix.SharedKernelMixture(**settings)
    if target is not None:
        estimator = skmix.SharedKernelClassifier(reject_below=outliers or None, **settings)
    ends = None if time_limit is None else time.monotonic() + time_limit
    if not is_search:
        estimator.set_params(**chosen)
    elif target is None:
        chosen["criterion"] = {None: "auto", "cv": "log_likelihood"}.get(criterion, criterion)
        estimator = skmix.SharedKernelMixtureCV(estimator, time_limit=time_limit, **settings, **chosen)
    else:
        # The fits of the test get an equal part of the time.
        limit = None if time_limit is None else time_limit / (1 + (folds or (hold_out is not None)))
        estimator = skmix.SharedKernelClassifierCV(estimator, time_limit=limit, **settings, **chosen)
    with cli.guarded(), watching() as watch:
        with watch.steps("reading", None), tables.table_at(data) as path:
            text |= {"categorical": categorical or ()}
            columns: dict[str, Any] = {"target": target, "weight": weight, "drop": drop or ()}
            source = tables.open_table(path, text, **columns, **preparation)
            X, y, weights = tables.rows_to_fit(source, target, unlabelled)
            X = X if errors is None else tables.with_errors(X, None, None, errors)[0]
        if ends is not None:
            # Said once, below, instead of for each search.
            warnings.simplefilter("ignore", ConvergenceWarning)
        with watch.steps("fitting", None):
            model = saved_part(estimator.fit(X, y, sample_weight=weights))
            # Channels of an FCS file reach a fit as arrays, without a name.
            for attribute, column in {"target_name_": target, "weight_name_": weight}.items():
                if column is not None:
                    setattr(model, attribute, column)
            if target is None and outliers:
                report.mark_outliers(model, X, outliers, weights)
        if target is not None:
            report.note_quality(model, X, y, weights)
        if test is None or path_out != cli.STANDARD:
            files.write_model(path_out, model)
        tested = None
        if test is not None:
            left = None if ends is None else max(ends - time.monotonic(), 0.0)
            try:
                tested, by_fold = report.cross_validate(
                    estimator, X, y, weights, folds=test, random_state=seed, time_limit=left
                )
            except KeyboardInterrupt:
                kept = "nothing was" if out == cli.STANDARD else f"{path_out}, which was not tested, is"
                cli.stop(f"interrupted; {kept} written.", cli.INTERRUPTED)
            measures = {"n_rows": tested.n_rows, "accuracy": tested.accuracy, "log_loss": tested.log_loss}
            model.quality_["tested"] = {**measures, "by_fold": by_fold}
            files.write_model(path_out, model)
        described = report.describe(model)
        if ends is not None and not described["converged"]:
            cli.note("the chosen model did not converge: increase --time-limit.")
    results, quality = getattr(estimator, "cv_results_", None), described["quality"] or {}
    outcome: dict[str, Any] = {
        "model": None if path_out == cli.STANDARD else path_out,
        "n_rows": len(X),
        "n_unlabelled": 0 if y is None else sum(label is None for label in y.tolist()),
        **described,
        "n_candidates": None if results is None else len(set(map(repr, results["params"]))),
        "n_untried": getattr(estimator, "n_untried_", None),
        "reduction": getattr(estimator, "best_params_", {}).get("reduction"),
        "training_accuracy": quality.get("training_accuracy"),
        "folds": None if tested is None else {**tested.as_dict(), "by_fold": by_fold},
    }
    aside = cli.STANDARD in (out, html)
    if as_json and not aside:
        print_json(outcome)
    else:
        _print_fit(outcome, err=aside)
        if tested is not None and not aside:
            say()
            print_evaluation(tested)
    if html is not None and tested is not None:
        by = "held-out rows" if folds is None else f"{len(by_fold)}-fold cross-validation"
        title = f"{files.name_of(data)}, {by}"
        files.write_page(html, partial(report.evaluation_page, tested, title=title))


def _print_fit(outcome: dict[str, Any], *, err: bool) -> None:
    """Print the rows of a fit, the model, and where it is."""
    from skmix import report
    from skmix._words import listed

    parts = [f"{outcome['n_rows']} rows", counted(len(outcome["columns"]), "feature")]
    if classes := outcome["classes"]:
        sizes = [f"{entry['label']} {count(entry['n_rows'])}" for entry in classes]
        parts.append(f"{len(classes)} classes ({listed(sizes)})")
    if outcome["n_unlabelled"]:
        parts.append(f"{outcome['n_unlabelled']} rows without a label")
    say(", ".join(parts), err=err)
    facts = report.facts(outcome)
    if outcome["n_candidates"]:
        facts["chosen"] = f"among {counted(outcome['n_candidates'], 'candidate')}"
        if outcome["n_untried"]:
            facts["chosen"] += f"; {outcome['n_untried']} more were not tried within --time-limit"
    print_facts(facts, err=err)
    if outcome["model"] is not None:
        say(f"written into {outcome['model']}", err=err)
