"""`skmix evaluate`: a classifier and labelled rows in, measures out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import console, count, print_table, say
from skmix.cli._progress import watching

if TYPE_CHECKING:
    from skmix.report import Evaluation

# Classes whose confusion matrix fits on a terminal; of more, its largest entries are printed.
_MAX_CLASSES = 12
# Classes that fit on a screen; of more, the worst are printed.
_MAX_CLASS_LINES, _WORST = 40, 20

Target = Annotated[
    str | None, options.option("COLUMN", "Column of labels; by default that of the fit.", "--target", "-t")
]
Weight = Annotated[
    str | None, options.option("COLUMN", "Column of weights; by default that of the fit, if there.")
]


@cli.app.command(
    epilog=cli.examples(
        "skmix evaluate flowers.skmix test.csv",
        "skmix evaluate flowers.skmix test.csv --json > scores.json",
        "skmix evaluate flowers.skmix test.csv --html scores.html",
        "skmix evaluate speakers.skmix test.csv --bags utterance",
    )
)
@options.with_text
def evaluate(
    model: options.Model,
    data: options.Data,
    target: Target = None,
    weight: Weight = None,
    bags: options.Bags = None,
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
    Rows without a label are left out. With --bags, bags of rows are predicted and
    counted in place of rows, and all rows of a bag must have the same label.
    """
    cli.check_inputs(model, data)
    from sklearn.base import is_classifier

    from skmix import report
    from skmix.cli import _files as files
    from skmix.cli import _tables as tables

    files.check_places({"--html": html}, reading=[model, data])
    with cli.guarded(), watching() as watch:
        fitted = files.load_model(model)
        if not is_classifier(fitted):
            cli.stop(f"{model} is not a classifier: it was fitted without --target.", cli.BAD_INPUT)
        target = target or getattr(fitted, "target_name_", None)
        if not target:
            cli.stop("the model has no target column. Name the column of labels with --target COLUMN.")
        with watch.steps("evaluating", None), tables.table_at(data) as path:
            weights = weight or tables.if_there(path, text, getattr(fitted, "weight_name_", None))
            of_bags = None if bags is None else tables.columns_of(path, text, [bags])[bags]
            drop = [] if bags is None else [bags]
            rows = tables.open_table(path, text, target=target, weight=weights, drop=drop, damaged=damaged)
            found = report.evaluate(fitted, rows, bags=of_bags)
        if weights is not None and bags is None:
            cli.note(f"rows count by their weights in {weights!r}, which sum to {found.n_rows:g}.")
    title = f"{Path(model).name} on {files.name_of(data)}"
    draw = partial(report.evaluation_page, found, title=title)
    files.print_and_draw(found.as_dict(), partial(print_evaluation, found), html, draw, as_json=as_json)


def print_evaluation(found: Evaluation) -> None:
    """Print measures, classes and the confusion matrix."""
    say(f"{count(found.n_rows)} {found.unit}, {len(found.classes)} classes")
    say()
    print_table(["", "value", "95 % interval", "baseline"], found.lines())
    console().print(*found.remarks())
    places = list(range(len(found.classes)))
    if len(places) > _MAX_CLASS_LINES:
        # NaN, of classes without rows, sorts last.
        places = found.f1.argsort(kind="stable")[:_WORST].tolist()
    counts = {"rows": found.n_labelled} | ({} if found.refused is None else {"refused": found.refused})
    measures = {"precision": found.precision, "recall": found.recall, "F1": found.f1}
    say()
    print_table(
        ["class", *counts, *measures],
        [
            [
                found.classes[place],
                *(count(numbers[place]) for numbers in counts.values()),
                *(f"{values[place]:.3f}".replace("nan", "") for values in measures.values()),
            ]
            for place in places
        ],
    )
    if len(places) < len(found.classes):
        say(f"These have the lowest F1 of {len(found.classes)} classes; --json has all.")
    say()
    if len(found.classes) > _MAX_CLASSES:
        mistakes = [
            (found.classes[true], found.classes[taken], count(n)) for true, taken, n in found.mistakes()
        ]
        print_table(["most frequent mistakes", "taken for", "rows"], mistakes)
    else:
        lines = zip(found.classes, found.confusion, strict=True)
        print_table(
            ["true \\ predicted", *found.classes], [[name, *map(count, line)] for name, line in lines]
        )
