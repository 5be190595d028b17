"""`skmix predict`: a model and a table in, predictions out."""

from __future__ import annotations

from typing import Annotated, Any

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import say
from skmix.cli._progress import watching

Out = Annotated[
    str,
    options.file(
        "Table to write: .csv, .tsv (.gz too) or .parquet; - is CSV on standard output.", "--out", "-o"
    ),
]
Keep = Annotated[list[str] | None, options.option("COLUMN", "Copy a column of DATA; can be repeated.")]
Prevalence = Annotated[
    bool, options.option("", "Write the share of each class among the rows, not the rows.", "--prevalence")
]
Adjust = Annotated[
    bool, options.option("", "Predict with the shares of the classes among these rows.", "--adjust")
]
Reasons = Annotated[bool, options.option("", "Also write why: columns kernels and far.", "--reasons")]


@cli.app.command(
    epilog=cli.examples(
        "skmix predict flowers.skmix new.csv -o predictions.csv",
        "skmix predict flowers.skmix new.parquet --keep id -o predictions.parquet",
        "skmix predict flowers.skmix new.csv --reasons -o predictions.csv",
        "skmix predict speakers.skmix new.csv --bags utterance -o predictions.csv",
        "skmix predict flowers.skmix new.csv --prevalence",
        "cat new.csv | skmix predict flowers.skmix -",
    )
)
@options.with_text
def predict(
    model: options.Model,
    data: options.Data,
    out: Out = cli.STANDARD,
    keep: Keep = None,
    drop: options.Drop = None,
    reasons: Reasons = False,
    bags: options.Bags = None,
    prevalence: Prevalence = False,
    adjust: Adjust = False,
    errors: options.Errors = None,
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

    With --bags, a classifier predicts one class for all rows of a bag, such as
    an utterance, and a line of the output is a bag. With --prevalence, it
    estimates which share of the rows each class has, with 95 % intervals, and
    with --adjust, it predicts each row under these shares in place of those
    of the training rows.
    """
    if reasons and errors is not None:
        cli.stop("--reasons cannot be combined with --errors.")
    cli.check_inputs(model, data)
    for_rows = {"--keep": keep, "--reasons": reasons, "--errors": errors}
    modes = {"--bags": bags, "--prevalence": prevalence, "--adjust": adjust}
    chosen = [option for option, value in modes.items() if value]
    if len(chosen) > 1:
        cli.stop(f"{chosen[0]} and {chosen[1]} cannot be combined; run the command twice.")
    if unused := [option for option, value in for_rows.items() if value and chosen]:
        cli.stop(f"{unused[0]} is for predictions of rows and cannot be combined with {chosen[0]}.")
    from sklearn.base import is_classifier

    from skmix import Study, report
    from skmix.cli import _files as files
    from skmix.cli import _tables as tables
    from skmix.data import Recipe

    files.check_places({"--out": out}, reading=[model, data])
    with cli.guarded(), watching() as watch:
        loaded = files.load_any(model)
        columns = {} if isinstance(loaded, Study) else Recipe.of(loaded).kinds
        if needed := [name for name in drop or () if name in columns]:
            raise ValueError(
                f"column {needed[0]!r} is a feature of the model and cannot be left out. Where its values "
                "are unknown, leave its cells empty."
            )
        with watch.steps("predicting", None), tables.table_at(data) as path:
            kept = tables.columns_of(path, text, keep or ())
            if chosen and not is_classifier(loaded):
                cli.stop(f"{chosen[0]} needs a classifier: {model} has no classes.", cli.BAD_INPUT)
            if bags is not None:
                of_bags = tables.columns_of(path, text, [bags])[bags]
                rows = tables.open_table(path, text, drop=[bags, *(drop or ())], damaged=damaged)
                predicted = report.predictions_of_bags(loaded, rows, of_bags)
            elif chosen:
                rows = tables.open_table(path, text, drop=[*(drop or ())], damaged=damaged)
                found = loaded.prevalence(rows, adjust=adjust)
                predicted = (
                    report.predictions(loaded, rows, posteriors=found.probabilities)
                    if adjust
                    else found.as_dict()
                )
            elif isinstance(loaded, Study):
                if errors is not None:
                    raise ValueError("a study of samples takes no errors.")
                predicted = loaded.predictions(path, why=reasons, text=text, damaged=damaged)
            else:
                rows = tables.open_table(path, text, drop=[*kept, *(drop or ())], damaged=damaged)
                measured = rows if errors is None else tables.with_errors(rows, None, None, errors)[0]
                predicted = report.predictions(loaded, measured, why=reasons)
        repeated = sorted(set(kept) & set(predicted))
        if repeated:
            cli.stop(f"--keep {repeated[0]}: the predictions already have a column of that name.")
        files.write_table(out, {**kept, **predicted})
    if out != cli.STANDARD and "outlier" not in predicted:
        what = "bags" if bags else "classes"
        say(f"{len(predicted['label'])} {what}, written into {out}")
    elif out != cli.STANDARD:
        n_outliers = int(predicted["outlier"].sum())
        flagged = f"{n_outliers} flagged as {'an outlier' if n_outliers == 1 else 'outliers'}"
        say(f"{len(predicted['outlier'])} rows, {flagged}, written into {out}")
