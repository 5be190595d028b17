"""Commands that use a fitted model: predict, evaluate, show, export."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching


@cli.app.command(
    epilog=cli.examples(
        "skmix predict flowers.skmix new.csv -o predictions.csv",
        "skmix predict flowers.skmix new.parquet --keep id -o predictions.parquet",
        "skmix predict flowers.skmix new.csv --reasons -o predictions.csv",
        "cat new.csv | skmix predict flowers.skmix -",
    )
)
@options.with_text
def predict(
    model: options.Model,
    data: options.Data,
    out: options.Out = cli.STANDARD,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Copy a column of DATA; may be given several times."),
    ] = None,
    drop: options.Drop = None,
    reasons: Annotated[
        bool, typer.Option("--reasons", metavar="", help="Also write why: columns kernels and far.")
    ] = False,
    *,
    text: dict[str, Any],
    damaged: options.Damaged = "refuse",
) -> None:
    """Predict the class of every row of a table.

    Writes for each row the label, the probability of each class (p_...), the
    log-density, and outlier: 1 if the row is unlike the training rows. For a
    mixture, the kernel replaces the label, and for a study of samples, the
    population: by the proportions of the sample if it is one of the study,
    identified by the name of the file or by the column of samples, and by
    averages if not.
    Columns are matched by name: DATA needs all columns of the model, and others
    are ignored. Empty cells, and categories that the model does not know, are
    missing values.

    With --reasons, kernels names the kernels that explain the row, such as
    k3 0.93 (setosa: 1.00): the probability of the kernel, and the share of its
    most frequent class. far names columns whose value is unlike what the first
    of these kernels expects from the others, such as fare +3.2, in standard
    deviations.
    """
    cli.look_for(model=model, data=[data], writing=[out])
    from skmix.cli import _tables as tables
    from skmix.data.opening import stem_of
    from skmix.report._predictions import predict_columns
    from skmix.samples import Study
    from skmix.samples.labelling import by_sample

    tables.check_place(out, reading=[model, data], table=True)
    with cli.guarded(), watching() as watch:
        found = tables.load_any(model)
        study = found if isinstance(found, Study) else None
        fitted, column = (found, None) if study is None else (study.model, study._origin.column)
        aside: dict[str, Any] = {"drop": drop or (), "keep": keep or (), "sample": column, "damaged": damaged}
        (rows, samples, _), kept = tables.read_for(watch, fitted, data, text, **aside)
        with watch.steps("predicting", None):
            populations, shares = None, None
            if study is not None:
                populations = study.populations
                own = samples if column is not None else [stem_of(Path(data).name)] * len(rows)
                shares = by_sample("predict_proba", fitted, rows, populations, own)
            predicted = predict_columns(fitted, rows, populations, posteriors=shares, why=reasons)
        twice = sorted(set(kept) & set(predicted))
        if twice:
            cli.stop(f"--keep {twice[0]}: the predictions already have a column of that name.")
        tables.write_table(out, {**kept, **predicted})
    if out != cli.STANDARD:
        n_outliers = int(predicted["outlier"].sum())
        flagged = f"{n_outliers} flagged as {'an outlier' if n_outliers == 1 else 'outliers'}"
        printing.say(f"{len(rows)} rows, {flagged}, written into {out}")


@cli.app.command(
    epilog=cli.examples(
        "skmix evaluate flowers.skmix test.csv",
        "skmix evaluate flowers.skmix test.csv --json > scores.json",
        "skmix evaluate flowers.skmix test.csv --html scores.html",
    )
)
@options.with_text
def evaluate(
    model: options.Model,
    data: options.Data,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", metavar="COLUMN", help="Column of labels; by default that of the fit."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights; by default that of the fit, if there."),
    ] = None,
    *,
    text: dict[str, Any],
    damaged: options.Damaged = "refuse",
    html: options.Html = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate a classifier on rows that it was not fitted to.

    Prints accuracy, log-loss, macro F1 and ROC AUC, with 95 % intervals; what the
    most frequent class of these rows would reach in accuracy, and the shares of
    their classes in log-loss; the calibration error; precision, recall and F1 of
    each class; and the confusion matrix. A row of weight 2 counts as two rows.
    Rows without a label are left out.
    """
    cli.look_for(model=model, data=[data], html=html)
    from sklearn.base import is_classifier

    from skmix import report
    from skmix.cli import _tables as tables

    tables.check_place(html, reading=[model, data])
    with cli.guarded(), watching() as watch:
        fitted = tables.load_model(model)
        if not is_classifier(fitted):
            cli.stop(f"{model} is not a classifier: it was fitted without --target.", cli.BAD_INPUT)
        rows = tables.read_labelled(watch, fitted, data, text, target, weight=weight, damaged=damaged)
        with watch.steps("evaluating", None):
            found = report.evaluate(fitted, *rows)
        if rows[2] is not None:
            cli.note(f"{len(rows[0])} rows count as {found.n_rows:g}, the sum of their weights.")
    title = f"{Path(model).name} on {tables.name_of(data)}"
    draw = partial(report.evaluation_page, found, title=title)
    in_words = partial(printing.print_evaluation, found)
    tables.print_and_draw(found.as_dict(), in_words, html, draw, as_json=as_json)


@cli.app.command(
    epilog=cli.examples(
        "skmix show flowers.skmix",
        "skmix show flowers.skmix --json",
        "skmix show study.skmix --html study.html",
    )
)
def show(model: options.Model, html: options.Html = None, as_json: options.Json = False) -> None:
    """Show a model or a study of samples.

    Of a model: columns, classes, kernels, accuracy, and how much each class uses
    each kernel; --json has its settings too. Of a study: samples, cells,
    markers, scale, and the proportions of the populations. --html writes an
    interactive page.
    """
    cli.look_for(model=model, html=html)
    from skmix import report
    from skmix.cli import _tables as tables
    from skmix.samples import Study

    tables.check_place(html, reading=[model])
    name = Path(model).name
    with cli.guarded(), watching() as watch:
        found = tables.load_any(model)
        if isinstance(found, Study):
            with watch.steps("composing", None):
                outcome, *frames = tables.composed(found)
            described = {"kind": "Study", **outcome, **tables.records(*frames)}
            in_words = partial(printing.print_study, outcome, *frames, name=name)
            draw = partial(found.to_html, title=name)
        else:
            described = report.describe(found)
            in_words = partial(printing.print_model, described, name)
            draw = partial(report.model_page, found, title=name)
    tables.print_and_draw(described, in_words, html, draw, as_json=as_json)


@cli.app.command(epilog=cli.examples("skmix export flowers.skmix --onnx flowers.onnx"))
def export(
    model: options.Model,
    onnx: Annotated[str, options.file(help="ONNX file to write; - is standard output.")],
) -> None:
    """Export a model to ONNX, for use without Python.

    Averages of several models, which skmix fit makes without --kernels, have
    no graph.
    """
    cli.look_for("onnx", model=model)
    from skmix.cli import _tables as tables

    tables.check_place(onnx, reading=[model])
    with cli.guarded():
        fitted = tables.load_model(model)
        exported = fitted.to_onnx()
        tables.write_bytes(onnx, exported.SerializeToString(deterministic=True))
    kinds = tables.columns_of(fitted)
    coded = [name for name, kind in kinds.items() if isinstance(kind, list)]
    names = [name for name in kinds if name not in coded]
    inputs, outputs = ([each.name for each in part] for part in (exported.graph.input, exported.graph.output))
    for name, own in {"X": names, "categories": coded}.items():
        if name in inputs:
            shown = ", ".join(own) or f"{fitted.n_features_in_} features"
            printing.say(f"input {name}: {shown}", err=onnx == cli.STANDARD)
    printing.say(f"outputs: {', '.join(outputs)}", err=onnx == cli.STANDARD)
    if onnx != cli.STANDARD:
        printing.say(f"written into {onnx}")
