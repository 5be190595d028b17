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
Reasons = Annotated[bool, options.option("", "Also write why: columns kernels and far.", "--reasons")]


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
    out: Out = cli.STANDARD,
    keep: Keep = None,
    drop: options.Drop = None,
    reasons: Reasons = False,
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
    cli.check_inputs(model, data)
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
            if isinstance(loaded, Study):
                predicted = loaded.predictions(path, why=reasons, text=text, damaged=damaged)
            else:
                rows = tables.open_table(path, text, drop=[*kept, *(drop or ())], damaged=damaged)
                predicted = report.predictions(loaded, rows, why=reasons)
        repeated = sorted(set(kept) & set(predicted))
        if repeated:
            cli.stop(f"--keep {repeated[0]}: the predictions already have a column of that name.")
        files.write_table(out, {**kept, **predicted})
    if out != cli.STANDARD:
        n_outliers = int(predicted["outlier"].sum())
        flagged = f"{n_outliers} flagged as {'an outlier' if n_outliers == 1 else 'outliers'}"
        say(f"{len(predicted['outlier'])} rows, {flagged}, written into {out}")
