"""`skmix predict`, `skmix sample`: what a model says about rows, and rows that it makes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from skmix import report
from skmix.cli._common import BAD_INPUT, STANDARD, WRONG_USE, Json, app, examples, guarded, print_json, stop
from skmix.cli._tables import (
    Data,
    Digits,
    Drop,
    Model,
    NoHeader,
    Out,
    check_out,
    load_model,
    read_for,
    unnamed,
    write_table,
)
from skmix.cli._watching import watching
from skmix.datasets import ColumnError, labels_like


@app.command(
    epilog=examples(
        "skmix predict flowers.skmix new.csv -o predictions.csv",
        "skmix predict flowers.skmix new.parquet --keep id -o predictions.parquet",
        "cat new.csv | skmix predict flowers.skmix - --digits 3",
    )
)
def predict(
    model: Model,
    data: Data,
    out: Out = STANDARD,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Copy a column of DATA; may be given several times."),
    ] = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    digits: Digits = None,
    as_json: Json = False,
) -> None:
    """Predict the class of every row of a table.

    Writes a row for each: label, the probability of each class (p_...), the
    log-density, and outlier, 1 where the row is unlike those of training. A
    model without classes gives the kernel in place of the label.
    Columns are matched by their names; their order is free, others are ignored.
    With --json, a summary is printed once the file is written.
    """
    check_out(out, reading=[model, data])
    _check_summary(as_json, out)
    with guarded(), watching() as watch:
        fitted = load_model(model)
        with watch.share("reading") as progress:
            rows = read_for(
                fitted, data, drop=drop or (), keep=keep or (), header=not no_header, progress=progress
            )
        with watch.share("predicting") as progress:
            predicted = report.predict_columns(unnamed(fitted), rows.X, progress)
        twice = sorted(set(rows.kept) & set(predicted))
        if twice:
            stop(f"--keep {twice[0]}: predictions have a column of that name themselves.", WRONG_USE)
        kept = {name: np.array(values, dtype=object) for name, values in rows.kept.items()}
        write_table(out, {**kept, **predicted}, digits)
    if out != STANDARD:
        n_rows, n_outliers = len(rows.X), int(predicted["outlier"].sum())
        if as_json:
            first = next(iter(predicted))
            found, counts = np.unique(predicted[first], return_counts=True)
            print_json(
                {
                    "file": out,
                    "n_rows": n_rows,
                    "n_outliers": n_outliers,
                    first: dict(zip(map(str, found.tolist()), counts.tolist(), strict=True)),
                }
            )
        else:
            typer.echo(f"{n_rows} rows, {n_outliers} of them outliers, written into {out}")


@app.command(
    epilog=examples(
        "skmix sample flowers.skmix 100 -o made.csv",
        "skmix sample flowers.skmix 5 --label setosa --digits 3",
    )
)
def sample(
    model: Model,
    number: Annotated[int, typer.Argument(metavar="N", help="Number of rows.", min=1)],
    label: Annotated[
        str | None, typer.Option("--label", help="Draw from this class; by default from all.")
    ] = None,
    out: Out = STANDARD,
    seed: Annotated[
        int | None, typer.Option(help="Seed; by default that of the fit.", min=0, max=2**32 - 1)
    ] = None,
    digits: Digits = None,
    as_json: Json = False,
) -> None:
    """Draw rows from a model.

    The table has the columns of the fit, with the label last.
    With --json, a summary is printed once the file is written.
    """
    check_out(out, reading=[model])
    _check_summary(as_json, out)
    with guarded(), watching() as watch, watch.steps("drawing", None):
        fitted = load_model(model)
        features = getattr(fitted, "feature_names_in_", None)
        names = (
            features if features is not None else [f"x{place + 1}" for place in range(fitted.n_features_in_)]
        )
        if seed is not None:
            fitted.set_params(random_state=seed)
        classes = getattr(fitted, "classes_", np.zeros(1))
        if len(classes) < 2:
            if label is not None:
                stop(f"{model} has no classes, so that --label has nothing to choose from.", WRONG_USE)
            drawn, _ = fitted.sample(number)
            columns = {}
        else:
            chosen = None if label is None else _class(label, classes)
            drawn, labels = fitted.sample(number, chosen)
            columns = {getattr(fitted, "target_name_", "label"): labels}
        write_table(out, {**dict(zip(map(str, names), drawn.T, strict=True)), **columns}, digits)
    if as_json:
        print_json({"file": out, "n_rows": number, "columns": [*map(str, names), *columns]})
    elif out != STANDARD:
        typer.echo(f"{number} rows written into {out}")


def _check_summary(as_json: bool, out: str) -> None:
    if as_json and out == STANDARD:
        stop("--json prints a summary, so that the table needs a file of its own: --out FILE.", WRONG_USE)


def _class(label: str, classes: np.ndarray) -> object:
    """Return the class that a label on the command line means."""
    try:
        found, _ = labels_like([label], classes, "--label")
    except ColumnError:
        known = ", ".join(str(each) for each in classes[:20].tolist())
        stop(f"--label {label}: the model knows {known}.", BAD_INPUT)
    return found[0]
