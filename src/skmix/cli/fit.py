"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

import math
import time
import warnings
from functools import partial
from typing import Annotated, Any, Literal

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching

_of_table = partial(typer.Option, rich_help_panel="The table")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_test = partial(typer.Option, rich_help_panel="The test")
_of_search = partial(typer.Option, rich_help_panel="The search")


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
    target: Annotated[
        str | None,
        _of_table("--target", "-t", metavar="COLUMN", help="Column of labels; none for a mixture."),
    ] = None,
    out: Annotated[
        str, options.file("--out", "-o", help="Model file; - is standard output.")
    ] = "model.skmix",
    drop: options.Drop = None,
    weight: Annotated[
        str | None, _of_table(metavar="COLUMN", help="Column of weights: how many rows each row stands for.")
    ] = None,
    categorical: Annotated[
        list[str] | None,
        _of_table(
            metavar="COLUMN", help="Column of numbers that are categories; may be given several times."
        ),
    ] = None,
    *,
    text: dict[str, Any],
    compensate: options.Compensate = None,
    transform: options.Transform = None,
    damaged: options.Damaged = "refuse",
    unlabelled: Annotated[
        Literal["refuse", "drop", "use"], _of_table(help="What to do with rows without a label.")
    ] = "refuse",
    folds: Annotated[
        int | None,
        _of_test(
            metavar="N", help="Test by cross-validation in N parts; the model is fitted to all rows.", min=2
        ),
    ] = None,
    hold_out: Annotated[
        float | None,
        _of_test(
            metavar="SHARE",
            help="Test by a second fit without a share of the rows; the model is fitted to all rows.",
            min=0.01,
            max=0.9,
        ),
    ] = None,
    html: Annotated[
        str | None,
        options.file(help="Write a page of what --folds or --hold-out found.", rich_help_panel="The test"),
    ] = None,
    kernels: Annotated[
        str,
        _of_model(
            metavar="auto|N",
            help="Number of kernels that classes share; auto lets cross-validation choose (slower).",
        ),
    ] = "auto",
    covariance: Annotated[
        Literal["full", "tied", "diag", "spherical", "auto"] | None,
        _of_model(
            metavar="TYPE",
            help="full, tied, diag, spherical or auto; by default auto, or full if --kernels is a number.",
        ),
    ] = None,
    outliers: Annotated[
        float,
        _of_model(
            metavar="SHARE", help="Share of new rows to mark as outliers; 0 marks none.", min=0.0, max=0.5
        ),
    ] = 0.01,
    criterion: Annotated[
        Literal["bic", "cv"] | None,
        _of_search(
            help="What chooses a mixture: the density of held-out rows (cv, the default), or the number of "
            "clusters (bic)."
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        _of_search(
            metavar="SECONDS",
            help="Time for everything, the fits of --folds too: searches then take the best so far.",
        ),
    ] = None,
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
    for option, given in {"--folds": folds, "--hold-out": hold_out, "--html": html}.items():
        if target is None and given is not None:
            cli.stop(f"{option} needs classes: name their column with --target.")
    if target is not None and criterion is not None:
        cli.stop("--criterion cannot be combined with --target: classes are judged by cross-validation.")
    if folds is not None and hold_out is not None:
        cli.stop("--folds cannot be combined with --hold-out: both test the model.")
    test = folds or hold_out
    if html is not None and test is None:
        cli.stop("--html is for what --folds or --hold-out finds: add --folds N.")
    if out == html == cli.STANDARD:
        cli.stop("standard output takes one of --out - and --html -.")
    chosen: dict[str, Any] = {"n_kernels": options.parse_number("--kernels", kernels) or "auto"}
    if covariance is not None:
        chosen["covariance_type"] = covariance
    if time_limit is not None and not 0.0 < time_limit < math.inf:
        cli.refuse("--time-limit", f"{time_limit:g} is not a number of seconds above 0.")
    if time_limit is not None and "auto" not in chosen.values():
        cli.stop("--time-limit cannot be combined with --kernels: nothing is searched for.")
    cli.look_for(data=[data], html=html)
    from sklearn.exceptions import ConvergenceWarning

    import skmix
    from skmix import report
    from skmix.cli import _tables as tables
    from skmix.data.labels import typed
    from skmix.data.missing import is_missing
    from skmix.engine.rows.blocks import Block
    from skmix.model.crossfit import set_threshold
    from skmix.search.base import saved_part

    settings: dict[str, Any] = {"n_jobs": jobs, "random_state": seed}
    if target is not None:
        settings["reject_below"] = outliers or None
    # Each search gets an equal part of the time.
    n_fits = 1 + (folds or (hold_out is not None))
    limit, ends = None, None
    if time_limit is not None:
        limit, ends = time_limit / n_fits, time.monotonic() + time_limit
    estimator: Any = skmix.SharedKernelMixture if target is None else skmix.SharedKernelClassifier
    if "auto" not in chosen.values():
        estimator = estimator(**settings, **chosen)
    else:
        chosen |= {"time_limit": limit, "n_jobs": jobs, "random_state": seed}
        search: Any = skmix.SharedKernelClassifierCV
        if target is None:
            search = skmix.SharedKernelMixtureCV
            chosen["criterion"] = {None: "auto", "cv": "log_likelihood"}.get(criterion, criterion)
        estimator = search(estimator(**settings), **chosen)
    preparation = options.parse_preparation(compensate, transform) | {"damaged": damaged}
    for place in (out, html):
        tables.check_place(place, reading=[data])
    with cli.guarded(), watching() as watch:
        roles: dict[str, Any] = {"target": target, "weight": weight, "drop": drop or ()}
        how = {"unlabelled": unlabelled, "preparation": preparation}
        text |= {"categorical": categorical or ()}
        X, y, weights = tables.read_to_fit(watch, data, text=text, **roles | how)
        if ends is not None:
            # Said once, below, instead of for each search.
            warnings.simplefilter("ignore", ConvergenceWarning)
        with watch.steps("fitting", None):
            model = saved_part(estimator.fit(X, y, sample_weight=weights))
            model.metadata_ = {"target": target, **({"weight": weight} if weight else {})}
            if target is None and outliers:
                set_threshold(model, outliers, Block(X.X, None, weights))
        results, best = getattr(estimator, "cv_results_", None), getattr(estimator, "best_params_", {})
        outcome: dict[str, Any] = {
            "model": None if out == cli.STANDARD else out,
            "n_rows": len(X),
            "n_unlabelled": 0,
            **report.describe(model),
            "n_candidates": None if results is None else len(set(map(repr, results["params"]))),
            "n_untried": getattr(estimator, "n_untried_", None),
            "reduction": best.get("reduction"),
            "sharing": best.get("kernels"),
            "training_accuracy": None,
            "folds": None,
        }
        if ends is not None and not outcome["converged"]:
            cli.note("the chosen model did not converge: increase --time-limit.")
        if y is not None:
            labelled = ~is_missing(y)
            outcome["n_unlabelled"] = int((~labelled).sum())
            own = None if weights is None else weights[labelled]
            accuracy = float(model.score(X[labelled], typed(y[labelled]), own))
            quality = {"training_accuracy": accuracy, "tested": None}
            model.metadata_["quality"] = {"log_likelihood": outcome["log_likelihood"], **quality}
            outcome |= {"training_accuracy": accuracy, "quality": model.metadata_["quality"]}
        if test is None or out != cli.STANDARD:
            tables.write_model(out, model)
        if test is not None:
            left = None if ends is None else max(ends - time.monotonic(), 0.0)
            try:
                tested, by_fold = report.cross_validate(
                    estimator, X, y, weights, folds=test, random_state=seed, time_limit=left
                )
            except KeyboardInterrupt:
                kept = "nothing was" if out == cli.STANDARD else f"{out}, which was not tested, is"
                cli.stop(f"interrupted; {kept} written.", cli.INTERRUPTED)
            outcome["folds"] = {**tested.as_dict(), "by_fold": by_fold}
            names = ("n_rows", "accuracy", "log_loss", "by_fold")
            model.metadata_["quality"]["tested"] = {name: outcome["folds"][name] for name in names}
            tables.write_model(out, model)
    aside = cli.STANDARD in (out, html)
    if as_json and not aside:
        printing.print_json(outcome)
    else:
        printing.print_fit(outcome, err=aside)
        if test is not None and not aside:
            printing.say()
            printing.print_evaluation(tested)
    if html is not None:
        by = "held-out rows" if folds is None else f"{len(by_fold)}-fold cross-validation"
        title = f"{tables.name_of(data)}, {by}"
        tables.write_page(html, partial(report.evaluation_page, tested, title=title))
