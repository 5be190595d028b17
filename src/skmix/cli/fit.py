"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import typer

from skmix import report
from skmix.cli._common import (
    STANDARD,
    WRONG_USE,
    Json,
    app,
    counted,
    examples,
    guarded,
    print_json,
    say,
    stop,
)
from skmix.cli._fitting import (
    Choices,
    Training,
    check_columns,
    fit_classifier,
    fit_mixture,
    outlier_label,
    parse_groups,
    parse_number,
    parse_priors,
    training_rows,
)
from skmix.cli._progress import watching
from skmix.cli._tables import Data, Drop, NoHeader, Seed, check_place, read, write_model

_of_table = partial(typer.Option, rich_help_panel="The table")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_search = partial(typer.Option, rich_help_panel="How it is found")


Covariance = Literal["full", "tied", "diag", "spherical", "low_rank", "auto"]
Criterion = Literal["bic", "icl", "aic", "cv"]


@app.command(
    epilog=examples(
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
        float,
        _of_table(help="Share of the rows to keep apart and to judge the model by.", min=0.0, max=0.9),
    ] = 0.0,
    kernels: Annotated[
        str,
        _of_model(metavar="auto|N", help="Number of kernels that classes share."),
    ] = "auto",
    covariance: Annotated[
        Covariance | None,
        _of_model(
            help="Structure of the kernels' covariances; by default auto with --target, and full "
            "without it or with a number of kernels."
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
            help="Share of the training rows whose density marks outliers; 0 marks none.",
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
        Criterion | None,
        _of_search(
            help="What automatic settings are chosen by: by default cv (cross-validation) with --target, "
            "and bic without it."
        ),
    ] = None,
    starts: Annotated[int, _of_search(help="Starting points; the best is kept.", min=1)] = 1,
    max_passes: Annotated[int, _of_search(help="Most passes over the rows.", min=1)] = 200,
    jobs: Annotated[int | None, _of_search(help="Threads; the model does not depend on it.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to a table.

    With --target a classifier whose classes share Gaussian kernels; without
    it an ordinary Gaussian mixture. What the options leave open is chosen
    automatically. Empty values are missing values and need no preparation. The
    model file keeps the names of the columns.

    Rows less likely than --outliers of the training rows are outliers: skmix
    predict marks them, and in Python predict returns 'outlier' for them, or
    -1 where labels are numbers.
    """
    if target is None:
        for option, given in {
            "--groups": groups,
            "--priors": priors,
            "--tune": tune,
            "--hold-out": hold_out or None,
        }.items():
            if given is not None:
                stop(f"{option} needs classes: name their column with --target.", WRONG_USE)
    if tune and (groups is not None or covariance == "low_rank"):
        other = "--groups" if groups is not None else "--covariance low_rank"
        stop(f"--tune does not work with {other}; leave one of them out.", WRONG_USE)
    if jobs == 0:
        raise typer.BadParameter("0 threads do no work; -1 takes all there are.", param_hint="--jobs")
    n_kernels = parse_number("--kernels", kernels, least=1, whole=True)
    if covariance is None:
        covariance = "auto" if n_kernels == "auto" and target is not None else "full"
    if criterion is None:
        criterion = "bic" if target is None else "cv"
    elif criterion != "cv" and groups is not None:
        stop(f"--criterion {criterion} does not work with --groups; cv does.", WRONG_USE)
    strength = None
    if covariance_prior != "none":
        strength = parse_number("--covariance-prior", covariance_prior, least=0)
        if strength == 0:
            raise typer.BadParameter(f"{covariance_prior} is not above 0.", param_hint="--covariance-prior")
    settings: dict[str, Any] = {
        "covariance_prior": strength,
        "n_init": starts,
        "max_iter": max_passes,
        "n_jobs": jobs,
        "random_state": seed,
    }
    check_place(out, reading=[data])
    with guarded(), watching() as watch:
        with watch.share("reading") as progress:
            rows = read(data, target=target, drop=drop or (), header=not no_header, progress=progress)
        check_columns(rows)
        training = training_rows(rows, target, unlabelled, hold_out, seed)
        feature_groups = parse_groups(groups, rows.feature_names)
        choices = Choices(n_kernels, covariance, feature_groups, criterion, tune)
        with watch.steps("fitting", None):
            metadata: dict[str, Any] = {"target": target}
            if training.y is None:
                model, search = fit_mixture(training, choices, settings)
                if outliers:
                    densities = np.asarray(model.score_samples(training.X))
                    metadata["outlier_threshold"] = float(
                        np.quantile(densities, outliers, method="inverted_cdf")
                    )
            else:
                classes = np.unique(training.y[training.known].tolist())
                settings["priors"] = parse_priors(priors, [str(label) for label in classes.tolist()])
                if outliers:
                    settings |= {"reject_below": outliers, "outlier_label": outlier_label(classes)}
                model, search = fit_classifier(training, choices, settings)
        model.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        model.metadata_ = metadata
        write_model(out, model)
        outcome = _outcome(model, search, training, out)
    if as_json and out != STANDARD:
        print_json(outcome)
    else:
        for line in _lines(outcome):
            say(line, err=out == STANDARD)


def _outcome(model: Any, search: Any, training: Training, out: str) -> dict[str, Any]:
    """Return the result of the fit in plain values."""
    described = report.describe(model)
    facts = ("kind", "features", "n_components", "target", "classes", "covariance_type", "n_parameters")
    end = ("converged", "n_iter", "log_likelihood", "outlier_threshold")
    outcome = {
        "model": None if out == STANDARD else out,
        "n_rows": len(training.X),
        "n_unlabelled": int(np.count_nonzero(~training.known)),
        **{name: described[name] for name in (*facts, *end)},
        "n_kernels": [group["n_kernels"] for group in described["groups"]],
        "groups": [group["features"] for group in described["groups"]],
        "n_candidates": None if search is None else len(search.cv_results_["params"]),
        "training_accuracy": None,
        "held_out": None,
    }
    if training.y is not None:
        X, y = training.X[training.known], training.y[training.known]
        outcome["training_accuracy"] = report.evaluate(model, X, y).accuracy
    if training.held_rows is not None and training.held_labels is not None:
        outcome["held_out"] = report.evaluate(model, training.held_rows, training.held_labels).as_dict()
    return outcome


def _lines(outcome: dict[str, Any]) -> list[str]:
    """Return the result of the fit in sentences."""
    classes, numbers, held = outcome["classes"], outcome["n_kernels"], outcome["held_out"]
    lines = [f"{outcome['n_rows']} rows, {counted(len(outcome['features']), 'feature')}"]
    if classes:
        shown = ", ".join(f"{each['label']} {each['n_rows']:g}" for each in classes[:10])
        lines[0] += f", {len(classes)} classes ({shown}{' ...' if len(classes) > 10 else ''})"
    if outcome["n_unlabelled"]:
        lines[0] += f", {outcome['n_unlabelled']} rows without a label"
    kernels = ", ".join(map(str, numbers)) + (" kernel" if numbers == [1] else " kernels")
    shared = " shared by all classes" if classes and len(numbers) == 1 else ""
    if outcome["n_components"]:
        shared += f" in {outcome['n_components']} principal components"
    shape = outcome["covariance_type"].replace("_", " ")
    lines.append(f"{kernels}{shared}, {shape} covariances, {outcome['n_parameters']} parameters")
    if outcome["n_candidates"]:
        lines.append(f"chosen among {counted(outcome['n_candidates'], 'candidate')}")
    if len(numbers) > 1:
        lines.append("groups: " + "; ".join(", ".join(group) for group in outcome["groups"]))
    ended = "converged" if outcome["converged"] else "did not converge"
    lines.append(f"{ended} in {counted(outcome['n_iter'], 'pass', 'passes')}")
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
    return lines
