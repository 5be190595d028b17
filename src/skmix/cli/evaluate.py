"""`skmix evaluate`: how good a model is on rows with labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from skmix import report
from skmix.cli._common import BAD_INPUT, STANDARD, Json, app, examples, guarded, print_json, stop
from skmix.cli._tables import (
    Data,
    Drop,
    Html,
    Model,
    NoHeader,
    Target,
    check_place,
    load_model,
    page_writers,
    read_labelled,
    unnamed,
    write_page,
)
from skmix.cli._watching import watching

# A confusion matrix of more classes does not fit on a terminal; its largest entries do.
_MOST_CLASSES = 12
_MOST_MISTAKES = 10
# Of more classes than a screen has lines, the worst are told.
_MOST_LINES = 40
_WORST = 20


@app.command(
    epilog=examples(
        "skmix evaluate flowers.skmix test.csv",
        "skmix evaluate flowers.skmix test.csv --json > scores.json",
        "skmix evaluate flowers.skmix test.csv --html scores.html",
    )
)
def evaluate(
    model: Model,
    data: Data,
    target: Target = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Measure a classifier on rows that it was not fitted to.

    Accuracy, mean IoU, log-loss, calibration error, the confusion matrix and
    precision, recall and IoU of each class. Rows without a label are left out.
    """
    check_place(html, reading=[model, data])
    with guarded(), watching() as watch:
        fitted = load_model(model)
        if not report.is_classifier(fitted):
            stop(f"{model} has no classes to tell apart: it was fitted without --target.", BAD_INPUT)
        with watch.share("reading") as progress:
            rows, labels, known = read_labelled(
                fitted, data, target, drop=drop or (), header=not no_header, progress=progress
            )
        with watch.steps("evaluating", None):
            found = report.evaluate(unnamed(fitted), rows.X[known], labels[known])
        if html is not None:
            source = "standard input" if data == STANDARD else Path(data).name
            write_page(html, page_writers().evaluation_page(found, title=f"{Path(model).name} on {source}"))
    if html == STANDARD:
        return
    if as_json:
        print_json(found.as_dict())
        return
    _print(found)
    if html is not None:
        typer.echo(f"\nwritten into {html}")


def _print(found: report.Evaluation) -> None:
    typer.echo(f"{found.n_rows} rows, {len(found.classes)} classes")
    measures = {
        "accuracy": found.accuracy,
        "mean IoU": found.mean_iou,
        "log-loss": found.log_loss,
        "calibration error": found.calibration_error,
        "outliers": found.outliers,
    }
    for name, value in measures.items():
        if value is not None:
            typer.echo(f"  {name:<18}{value:.4f}")
    console = Console()
    shown = _table(["class", "rows", "precision", "recall", "IoU"])
    places = np.arange(len(found.classes))
    if len(places) > _MOST_LINES:
        # Classes without rows have no share and go last.
        places = np.argsort(found.iou, kind="stable")[:_WORST]
    for place in places:
        shares = (found.precision[place], found.recall[place], found.iou[place])
        shown.add_row(found.classes[place], str(found.confusion[place].sum()), *map(_share, shares))
    typer.echo("")
    console.print(shown)
    if len(places) < len(found.classes):
        typer.echo(f"These have the lowest IoU of {len(found.classes)} classes; --json has all.")
    typer.echo("")
    if len(found.classes) <= _MOST_CLASSES:
        shown = _table(["true \\ predicted", *found.classes])
        for label, counts in zip(found.classes, found.confusion, strict=True):
            shown.add_row(label, *map(str, counts))
        console.print(shown)
    else:
        _print_mistakes(console, found)


def _print_mistakes(console: Console, found: report.Evaluation) -> None:
    """Print the largest entries beside the diagonal of a large confusion matrix."""
    mistakes = found.confusion - np.diag(np.diagonal(found.confusion))
    largest = np.argsort(-mistakes, axis=None, kind="stable")[:_MOST_MISTAKES]
    shown = _table(["most frequent mistakes", "taken for", "rows"])
    for true, predicted in zip(*np.unravel_index(largest, mistakes.shape), strict=True):
        if mistakes[true, predicted]:
            shown.add_row(found.classes[true], found.classes[predicted], str(mistakes[true, predicted]))
    console.print(shown)


def _share(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def _table(headings: list[str]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return shown
