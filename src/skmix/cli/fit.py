"""`skmix fit`: a table in, a model out."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import numpy as np
import typer

from skmix import report
from skmix.cli._common import STANDARD, WRONG_USE, Json, app, examples, guarded, print_json, stop
from skmix.cli._fitting import Training, fit_classifier, fit_mixture, look_over, parse_number, training_rows
from skmix.cli._tables import Data, Drop, NoHeader, Seed, check_place, read, unnamed, write_model
from skmix.cli._watching import watching

_TABLE, _CHOICES, _SEARCH = "The table", "The model", "How it is found"


class Covariance(enum.StrEnum):
    """Structures of covariances, or a choice among them."""

    FULL = "full"
    TIED = "tied"
    DIAG = "diag"
    SPHERICAL = "spherical"
    LOW_RANK = "low_rank"
    AUTO = "auto"


class Criterion(enum.StrEnum):
    """What automatic settings are chosen by."""

    BIC = "bic"
    ICL = "icl"
    CV = "cv"


class Unlabelled(enum.StrEnum):
    """What becomes of rows without a label."""

    REFUSE = "refuse"
    DROP = "drop"
    USE = "use"


@app.command(
    epilog=examples(
        "skmix fit flowers.csv --target species -o flowers.skmix",
        "skmix fit flowers.csv --target species --hold-out 0.25 --drop id",
        "skmix fit flowers.csv --target species --covariance auto --criterion cv",
        'skmix fit flowers.csv --target species --groups "width,length;colour"',
        "zcat rows.csv.gz | skmix fit - --kernels 20 -o density.skmix",
    )
)
def fit(
    data: Data,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="COLUMN",
            help="Column of labels; without it, an ordinary mixture of all columns.",
            rich_help_panel=_TABLE,
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Model file; - is standard output.")
    ] = "model.skmix",
    drop: Drop = None,
    no_header: NoHeader = False,
    unlabelled: Annotated[
        Unlabelled, typer.Option(help="Rows without a label.", rich_help_panel=_TABLE)
    ] = Unlabelled.REFUSE,
    hold_out: Annotated[
        float,
        typer.Option(
            help="Share of the rows to keep apart and to judge the model by.",
            min=0.0,
            max=0.9,
            rich_help_panel=_TABLE,
        ),
    ] = 0.0,
    kernels: Annotated[
        str,
        typer.Option(
            metavar="auto|N", help="Number of kernels that classes share.", rich_help_panel=_CHOICES
        ),
    ] = "auto",
    covariance: Annotated[
        Covariance, typer.Option(help="Structure of the kernels' covariances.", rich_help_panel=_CHOICES)
    ] = Covariance.FULL,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar='"a,b;c,d"|auto',
            help="Features that are independent, given the class, of those of other groups.",
            rich_help_panel=_CHOICES,
        ),
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option(
            "--priors",
            "--prior",
            metavar="uniform|a=P,b=P",
            help="Class probabilities; by default as frequent as in the table.",
            rich_help_panel=_CHOICES,
        ),
    ] = None,
    covariance_prior: Annotated[
        str,
        typer.Option(
            metavar="auto|none|ROWS",
            help="Strength of the prior on covariances, in rows; auto shrinks them where rows are few.",
            rich_help_panel=_CHOICES,
        ),
    ] = "auto",
    outliers: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of the training rows whose density marks outliers; 0 marks none.",
            min=0.0,
            max=0.5,
            rich_help_panel=_CHOICES,
        ),
    ] = 0.01,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Go on to tell classes apart, at the cost of densities.", rich_help_panel=_CHOICES
        ),
    ] = False,
    criterion: Annotated[
        Criterion,
        typer.Option(
            help="What automatic settings are chosen by; cv, by rows held out, is slow and often best.",
            rich_help_panel=_SEARCH,
        ),
    ] = Criterion.BIC,
    starts: Annotated[
        int, typer.Option(help="Starting points; the best is kept.", min=1, rich_help_panel=_SEARCH)
    ] = 1,
    max_passes: Annotated[
        int, typer.Option(help="Most passes over the rows.", min=1, rich_help_panel=_SEARCH)
    ] = 200,
    jobs: Annotated[
        int | None, typer.Option(help="Threads; the model does not depend on it.", rich_help_panel=_SEARCH)
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a model to a table.

    With --target a classifier whose classes share Gaussian kernels; without
    it an ordinary Gaussian mixture. Empty values are missing ones, and are
    learnt around. The names of the columns travel with the model.

    Rows less likely than --outliers of the training rows are outliers: skmix
    predict marks them, and in Python predict returns 'outlier' for them, or
    -1 where labels are numbers.
    """
    settings: dict[str, Any] = {
        "n_kernels": parse_number("--kernels", kernels, least=1, most=np.inf, whole=True),
        "covariance_type": covariance.value,
        "covariance_prior": (
            None
            if covariance_prior == "none"
            else parse_number("--covariance-prior", covariance_prior, least=0, most=np.inf)
        ),
        "criterion": criterion.value,
        "n_init": starts,
        "max_iter": max_passes,
        "n_jobs": jobs,
        "random_state": seed,
    }
    if target is None:
        given = {
            "--groups": groups,
            "--priors": priors,
            "--tune": tune or None,
            "--hold-out": hold_out or None,
        }
        for option, value in given.items():
            if value is not None:
                stop(f"{option} needs classes: name their column with --target.", WRONG_USE)
    if settings["covariance_prior"] in (0, np.inf):
        raise typer.BadParameter(f"{covariance_prior} is not above 0.", param_hint="--covariance-prior")
    if jobs == 0:
        raise typer.BadParameter("0 threads do no work; -1 takes all there are.", param_hint="--jobs")
    check_place(out, reading=[data])
    with guarded(), watching() as watch:
        with watch.share("reading") as progress:
            rows = read(data, target=target, drop=drop or (), header=not no_header, progress=progress)
        look_over(rows)
        training = training_rows(rows, target, unlabelled.value, hold_out, seed)
        share = outliers or None
        model: Any
        if target is None:
            model = fit_mixture(training, rows.feature_names, settings, share)
        else:
            own = {**settings, "feature_groups": groups, "priors": priors, "reject_below": share}
            with watch.steps("fitting", None):
                model = fit_classifier(training, rows.feature_names, target, own, tune)
        write_model(out, model)
        outcome = _outcome(model, training, out)
    if as_json and out != STANDARD:
        print_json(outcome)
    else:
        for line in _told(outcome):
            typer.echo(line, err=out == STANDARD)


def _outcome(model: Any, training: Training, out: str) -> dict[str, Any]:
    """Return what came of the fit, in plain values; the model forgets its features' names on the way."""
    described = report.describe(model)
    bare = unnamed(model)
    held, seen = None, None
    if training.y is not None:
        known = training.known
        seen = report.evaluate(bare, training.X[known], training.y[known]).accuracy
        if training.held_rows is not None and training.held_labels is not None:
            held = report.evaluate(bare, training.held_rows, training.held_labels).as_dict()
    return {
        "model": None if out == STANDARD else out,
        "n_rows": len(training.X),
        "n_unlabelled": int(np.count_nonzero(~training.known)),
        **{
            name: described[name]
            for name in ("kind", "features", "target", "classes", "covariance_type", "n_parameters")
        },
        "n_kernels": [group["n_kernels"] for group in described["groups"]],
        "groups": [group["features"] for group in described["groups"]],
        **{name: described[name] for name in ("converged", "n_iter", "log_likelihood", "outlier_threshold")},
        "training_accuracy": seen,
        "held_out": held,
    }


def _told(outcome: dict[str, Any]) -> list[str]:
    """Return what came of the fit in sentences."""
    classes = outcome["classes"]
    lines = [f"{outcome['n_rows']} rows, {_counted(len(outcome['features']), 'feature')}"]
    if classes:
        shown = ", ".join(f"{each['label']} {each['n_rows']:g}" for each in classes[:10])
        more = " ..." if len(classes) > 10 else ""
        lines[0] += f", {len(classes)} classes ({shown}{more})"
    if outcome["n_unlabelled"]:
        lines[0] += f", {outcome['n_unlabelled']} rows without a label"
    numbers = outcome["n_kernels"]
    kernels = (
        _counted(numbers[0], "kernel") if len(numbers) == 1 else f"{', '.join(map(str, numbers))} kernels"
    )
    shape = outcome["covariance_type"].replace("_", " ")
    lines.append(
        f"{kernels}{' shared by all classes' if classes and len(numbers) == 1 else ''}, {shape} covariances, "
        f"{outcome['n_parameters']} parameters"
    )
    if len(numbers) > 1:
        lines.append("groups: " + "; ".join(", ".join(group) for group in outcome["groups"]))
    ended = "converged" if outcome["converged"] else "did not converge"
    lines.append(f"{ended} in {_counted(outcome['n_iter'], 'pass', 'passes')}")
    if outcome["training_accuracy"] is not None:
        lines.append(
            f"{100 * outcome['training_accuracy']:.1f} % of the training rows are classified correctly"
        )
    held = outcome["held_out"]
    if held is not None:
        lines.append(
            f"{100 * held['accuracy']:.1f} % of {held['n_rows']} held-out rows, "
            f"log-loss {held['log_loss']:.3f}, calibration error {held['calibration_error']:.3f}"
        )
    if outcome["model"] is not None:
        lines.append(f"written into {outcome['model']}")
    return lines


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
