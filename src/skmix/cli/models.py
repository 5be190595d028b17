"""Commands that use a fitted model: predict, evaluate, show, sample, export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.base import is_classifier

from skmix import report
from skmix.cli import _common as cli
from skmix.cli import _tables as tables
from skmix.cli._progress import watching
from skmix.groups import Study
from skmix.io import ColumnError
from skmix.io.encoding import decode_columns, listed
from skmix.io.labels import labels_like
from skmix.plots._models import part_label
from skmix.report._predictions import predict_columns, target_of
from skmix.report.description import serving, traits

_BAR = 6
_MAX_LINES = 20
_MAX_NAMES = 12
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_TENTHS = " .:-=+*#%@"
# With more classes the confusion matrix does not fit on a terminal; only its largest entries are shown.
_MAX_CLASSES = 12
# If there are more classes than a screen has lines, only the worst are shown.
_MAX_CLASS_LINES = 40


@cli.app.command(
    epilog=cli.examples(
        "skmix predict flowers.skmix new.csv -o predictions.csv",
        "skmix predict flowers.skmix new.parquet --keep id -o predictions.parquet",
        "cat new.csv | skmix predict flowers.skmix - --digits 3",
    )
)
def predict(
    model: tables.Model,
    data: tables.Data,
    out: tables.Out = cli.STANDARD,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Copy a column of DATA; may be given several times."),
    ] = None,
    drop: tables.Drop = None,
    no_header: tables.NoHeader = False,
    sep: tables.Sep = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = None,
    missing: tables.Missing = None,
    digits: tables.Digits = None,
    as_json: cli.Json = False,
) -> None:
    """Predict the class of every row of a table.

    Writes a row for each: label, the probability of each class (p_...), the
    log-density, and outlier, 1 if the row is unlike the training rows. For a
    model without classes, the kernel replaces the label.
    Columns are matched by name, in any order; other columns are ignored. A
    column that DATA lacks, and a category that the model does not know, are
    missing values. A table without rows gives one without rows.
    With --json, prints a summary once the file is written.
    """
    written = tables.written(no_header, sep, decimal, encoding, missing)
    tables.check_place(out, reading=[model, data], table=True, as_json=as_json)
    with cli.guarded(), watching() as watch:
        found = tables.load_any(model)
        fitted = found.model if isinstance(found, Study) else found
        rows = tables.read_for(watch, fitted, data, drop=drop, keep=keep or (), **written)
        with watch.share("predicting") as progress:
            predicted = predict_columns(fitted, rows.X, progress)
        if isinstance(found, Study) and found.populations is not None:
            own = found.populations.predict(fitted, rows.X) if len(rows.X) else np.empty(0, dtype=np.int64)
            predicted = {"kernel": predicted.pop("kernel"), "population": own, **predicted}
        twice = sorted(set(rows.kept) & set(predicted))
        if twice:
            cli.stop(f"--keep {twice[0]}: the predictions already have a column of that name.", cli.WRONG_USE)
        kept = {name: np.array(values, dtype=object) for name, values in rows.kept.items()}
        tables.write_table(out, {**kept, **predicted}, digits)
    n_rows, n_outliers = len(rows.X), int(predicted["outlier"].sum())
    if as_json:
        first = next(iter(predicted))
        found, counts = np.unique(predicted[first], return_counts=True)
        by_value = dict(zip(map(str, found.tolist()), counts.tolist(), strict=True))
        cli.print_json({"file": out, "n_rows": n_rows, "n_outliers": n_outliers, first: by_value})
    elif out != cli.STANDARD:
        cli.say(f"{n_rows} rows, {n_outliers} of them outliers, written into {out}")


@cli.app.command(
    epilog=cli.examples(
        "skmix sample flowers.skmix 100 -o made.csv",
        "skmix sample flowers.skmix 5 --label setosa --digits 3",
    )
)
def sample(
    model: tables.Model,
    number: Annotated[int, typer.Argument(metavar="N", help="Number of rows.", min=1)],
    label: Annotated[str | None, typer.Option(help="Draw from this class; by default from all.")] = None,
    out: tables.Out = cli.STANDARD,
    seed: Annotated[
        int | None, typer.Option(help="Seed; by default that of the fit.", min=0, max=2**32 - 1)
    ] = None,
    digits: tables.Digits = None,
    as_json: cli.Json = False,
) -> None:
    """Draw rows from a model.

    The table has the columns of the fit, with the label last. Categories are
    the likeliest ones.
    With --json, prints a summary once the file is written.
    """
    tables.check_place(out, reading=[model], table=True, as_json=as_json)
    with cli.guarded(), watching() as watch, watch.steps("drawing", None):
        fitted = tables.load_model(model)
        if not hasattr(fitted, "sample"):
            cli.stop(
                f"{model} reduces the features first and cannot be sampled: fit with --kernels.",
                cli.BAD_INPUT,
            )
        if seed is not None:
            fitted.set_params(random_state=seed)
        classes = getattr(fitted, "classes_", np.zeros(1))
        if len(classes) < 2 and label is not None:
            cli.stop(f"{model} has no classes, so --label has nothing to choose from.", cli.WRONG_USE)
        try:
            chosen: Any = [] if label is None else labels_like([label], classes, "--label")[0][:1]
        except ColumnError:
            known = ", ".join(str(each) for each in classes[:20].tolist())
            cli.stop(f"--label {label}: not a class of the model; its classes are {known}.", cli.BAD_INPUT)
        drawn, labels = fitted.sample(number, *chosen)
        names = getattr(fitted, "feature_names_in_", [f"x{i}" for i in range(1, drawn.shape[1] + 1)])
        kinds = tables.columns_of(fitted) or dict.fromkeys(names)
        columns: dict[str, Any] = decode_columns(drawn, kinds)
        if len(classes) > 1:
            columns[target_of(fitted) or "label"] = labels
        tables.write_table(out, columns, digits)
    if as_json:
        cli.print_json({"file": out, "n_rows": number, "columns": list(columns)})
    elif out != cli.STANDARD:
        cli.say(f"{number} rows written into {out}")


@cli.app.command(
    epilog=cli.examples(
        "skmix evaluate flowers.skmix test.csv",
        "skmix evaluate flowers.skmix test.csv --json > scores.json",
        "skmix evaluate flowers.skmix test.csv --html scores.html",
    )
)
def evaluate(
    model: tables.Model,
    data: tables.Data,
    target: tables.Target = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of weights: how many rows each row stands for. By default the one of the fit, if "
            "DATA has it.",
        ),
    ] = None,
    drop: tables.Drop = None,
    no_header: tables.NoHeader = False,
    sep: tables.Sep = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = None,
    missing: tables.Missing = None,
    html: tables.Html = None,
    as_json: cli.Json = False,
) -> None:
    """Evaluate a classifier on rows that it was not fitted to.

    Prints accuracy, mean IoU, log-loss, calibration error, the confusion matrix
    and precision, recall and IoU of each class. A row of weight 2 counts as two
    rows. Rows without a label are left out.
    """
    written = tables.written(no_header, sep, decimal, encoding, missing)
    tables.check_place(html, reading=[model, data])
    with cli.guarded(), watching() as watch:
        fitted = tables.load_model(model)
        if not is_classifier(fitted):
            cli.stop(f"{model} is not a classifier: it was fitted without --target.", cli.BAD_INPUT)
        noted = getattr(fitted, "metadata_", {}).get("weight")
        X, y, weights = tables.read_labelled(
            watch, fitted, data, target, weight=weight or noted, drop=drop, **written
        )
        if weights is None and weight is not None:
            cli.stop(f"there is no column {weight!r} of weights in {data}.", cli.BAD_INPUT)
        if weights is None and noted is not None:
            cli.note(f"there is no column {noted!r}, the weights of the fit: each row counts once.")
        with watch.steps("evaluating", None):
            found = report.evaluate(fitted, X, y, weights)
        if html is not None:
            source = "standard input" if data == cli.STANDARD else Path(data).name
            title = f"{Path(model).name} on {source}"
            tables.write_bytes(html, report.evaluation_page(found, title=title).encode())
    _print(found.as_dict(), lambda: print_evaluation(found), html, as_json)


@cli.app.command(
    epilog=cli.examples(
        "skmix show flowers.skmix",
        "skmix show flowers.skmix --json",
        "skmix show flowers.skmix --html flowers.html --data flowers.csv",
    )
)
def show(
    model: tables.Model,
    html: tables.Html = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Rows to draw on the page, together with the kernels.")
    ] = None,
    target: tables.Target = None,
    no_header: tables.NoHeader = False,
    sep: tables.Sep = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = None,
    missing: tables.Missing = None,
    as_json: cli.Json = False,
) -> None:
    """Show a model: features, classes, kernels, weights and settings.

    Each line of weights shows how much each class uses a kernel. --html writes
    an interactive page of kernels, weights and projections.
    """
    if data is not None and html is None:
        cli.stop("--data is for the page: add --html FILE.", cli.WRONG_USE)
    written = tables.written(no_header, sep, decimal, encoding, missing)
    tables.check_place(html, reading=[model, data])
    name = Path(model).name
    with cli.guarded(), watching() as watch:
        fitted = tables.load_model(model)
        described = report.describe(fitted)
        if html is not None:
            X = y = None
            if data is not None and is_classifier(fitted):
                X, y, _ = tables.read_labelled(watch, fitted, data, target, **written)
            elif data is not None:
                X = tables.read_for(watch, fitted, data, **written).X
            with watch.steps("drawing", None):
                page = report.model_page(fitted, title=name, X=X, y=y)
            tables.write_bytes(html, page.encode())
    _print(described, lambda: _print_model(described, name), html, as_json)


@cli.app.command(epilog=cli.examples("skmix export flowers.skmix --onnx flowers.onnx"))
def export(
    model: tables.Model,
    onnx: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="ONNX file to write; - is standard output.", callback=cli.or_standard
        ),
    ],
    float32: Annotated[
        bool, typer.Option("--float32", help="Rows in and probabilities out are of single precision.")
    ] = False,
    as_json: cli.Json = False,
) -> None:
    """Export a model to ONNX, for use without Python."""
    tables.check_place(onnx, reading=[model], as_json=as_json)
    with cli.guarded():
        fitted = tables.load_model(model)
        exported = fitted.to_onnx(dtype=np.float32 if float32 else np.float64)
        tables.write_bytes(onnx, exported.SerializeToString(deterministic=True))
    names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    kinds = tables.columns_of(fitted)
    coded = [name for name, kind in kinds.items() if isinstance(kind, list)]
    names = [name for name in kinds if name not in coded]
    inputs, outputs = ([each.name for each in part] for part in (exported.graph.input, exported.graph.output))
    if as_json:
        features: Any = names if kinds else int(fitted.n_features_in_)
        given = {"inputs": inputs, "features": features, "categories": coded, "outputs": outputs}
        cli.print_json({"file": onnx, **given})
        return
    for name, own in {"X": names, "categories": coded}.items():
        if name in inputs:
            shown = ", ".join(own) or f"{fitted.n_features_in_} features"
            cli.say(f"input {name}: {shown}", err=onnx == cli.STANDARD)
    cli.say(f"outputs: {', '.join(outputs)}", err=onnx == cli.STANDARD)
    if onnx != cli.STANDARD:
        cli.say(f"written into {onnx}")


def _print(content: dict[str, Any], in_words: Callable[[], None], html: str | None, as_json: bool) -> None:
    """Print a result as JSON or in words, unless its page goes to standard output."""
    if html == cli.STANDARD:
        return
    if as_json:
        cli.print_json(content)
        return
    in_words()
    if html is not None:
        cli.say()
        cli.say(f"written into {html}")


def print_evaluation(found: report.Evaluation) -> None:
    """Print measures, classes and the confusion matrix."""
    cli.say(f"{cli.count(found.n_rows)} rows, {len(found.classes)} classes")
    measures = {
        "accuracy": found.accuracy,
        "mean IoU": found.mean_iou,
        "log-loss": found.log_loss,
        "calibration error": found.calibration_error,
        "outliers": found.outliers,
    }
    for name, value in measures.items():
        if value is not None:
            cli.say(f"  {name:<18}{value:.4f}")
    places = np.arange(len(found.classes))
    if len(places) > _MAX_CLASS_LINES:
        # NaN, of classes without rows, sorts last.
        places = np.argsort(found.iou, kind="stable")[:_MAX_LINES]
    shares = np.array([found.precision, found.recall, found.iou]).T
    rows = [
        [
            found.classes[place],
            cli.count(found.n_labelled[place]),
            *([] if found.refused is None else [cli.count(found.refused[place])]),
            *("" if np.isnan(share) else f"{share:.3f}" for share in shares[place]),
        ]
        for place in places
    ]
    cli.say()
    headings = [
        "class",
        "rows",
        *([] if found.refused is None else ["refused"]),
        "precision",
        "recall",
        "IoU",
    ]
    cli.console().print(cli.table(headings, rows))
    if len(places) < len(found.classes):
        cli.say(f"These have the lowest IoU of {len(found.classes)} classes; --json has all.")
    cli.say()
    headings = ["true \\ predicted", *found.classes]
    rows = [
        [label, *map(cli.count, line)] for label, line in zip(found.classes, found.confusion, strict=True)
    ]
    if len(found.classes) > _MAX_CLASSES:
        headings = ["most frequent mistakes", "taken for", "rows"]
        rows = [
            [found.classes[true], found.classes[taken], cli.count(n)] for true, taken, n in found.mistakes()
        ]
    cli.console().print(cli.table(headings, rows))


def _print_model(described: dict[str, Any], name: str) -> None:
    classes, sets = described["classes"], described["feature_sets"]
    likelihood, threshold = described["log_likelihood"], described["outlier_threshold"]
    numbers, n_shared = ([each[name] for each in sets] for name in ("n_kernels", "n_shared"))
    shared = f", {serving(numbers, n_shared)}" if len(classes) > 1 else ""
    names = described["features"]
    facts = {
        "features": (f"{len(names)}: " if len(names) <= _MAX_NAMES else "") + listed(names, _MAX_NAMES),
        "ranks" if described["by_rank"] else "powers": described["n_transformed"]
        and f"of {described['n_transformed']} features" + ("" if described["by_rank"] else " (Yeo-Johnson)"),
        "components": described["n_components"],
        "averaged": described["n_members"] and f"{described['n_members']} models; the best one follows",
        "target": described["target"],
        "kernels": ", ".join(map(str, numbers)) + shared,
        "covariances": described["covariance_type"].replace("_", " "),
        "parameters": described["n_parameters"],
        "fit": f"{'converged' if described['converged'] else 'did not converge'} in "
        f"{cli.counted(described['n_iter'], 'pass', 'passes')}"
        + ("" if likelihood is None else f", log-likelihood {likelihood:.2f}"),
        "outliers": None if threshold is None else f"log-density below {threshold:.3f}",
        "temperature": None if described["temperature"] == 1.0 else f"{described['temperature']:.3g}",
        "settings": ", ".join(f"{key}={value}" for key, value in described["settings"].items()) or None,
    }
    for key, text in traits(described):
        facts[key] = f"{facts[key]}, {text}" if facts.get(key) else text
    cli.say(f"{name}: {described['kind']}")
    for key, fact in facts.items():
        if fact:
            cli.say(f"  {key:<12}{fact}")
    if classes:
        rows = [
            [each["label"], "" if each["n_rows"] is None else f"{each['n_rows']:g}", f"{each['prior']:.3f}"]
            for each in classes[:_MAX_LINES]
        ]
        cli.say()
        cli.console().print(cli.table(["class", "rows", "prior"], rows))
        _print_more(len(classes) - _MAX_LINES, "classes")
    for each in sets:
        cli.say()
        if len(sets) > 1:
            cli.say(f"feature set {listed(each['features'], _MAX_NAMES)}")
        _print_weights(each, [own["label"] for own in classes] or ["weight"])


def _print_weights(part: dict[str, Any], labels: list[str]) -> None:
    """Print how much each class uses each kernel, the kernels with most rows first."""
    weights, shares = np.array(part["weights"]), np.array(part["shares"])
    labels = [cli.verbatim(label, in_line=True) for label in labels]
    terminal = cli.console()
    plain = terminal.options.ascii_only
    # Two spaces separate columns.
    room = terminal.width - len("kernel  share  ")
    wide = sum(max(len(label), _BAR + 6) + 2 for label in labels) <= room
    narrow = sum(len(label) + 2 for label in labels) <= room
    shown = cli.table(["kernel", "share"])
    if not wide and not narrow:
        first = f"the first {room - 1} classes" if len(labels) >= room else "all classes"
        labels = [f"a place for each of {first}"]
    for label in labels:
        shown.add_column(label, no_wrap=True, justify="center" if narrow and not wide else "left")
    for kernel in np.argsort(-shares, kind="stable")[:_MAX_LINES]:
        cells = [_level(weight, plain) for weight in weights[kernel]]
        if wide:
            cells = [f"{weight:.3f} {_bar(weight, plain)}" for weight in weights[kernel]]
        elif not narrow:
            cells = ["".join(cells[: room - 1])]
        shown.add_row(part_label(kernel), f"{shares[kernel]:.3f}", *cells)
    terminal.print(shown)
    _print_more(len(weights) - _MAX_LINES, "kernels")


def _bar(weight: float, plain: bool) -> str:
    """Return a bar whose length is a weight between 0 and 1."""
    eighths = round(weight * _BAR * 8)
    if plain:
        return "#" * round(eighths / 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _level(weight: float, plain: bool) -> str:
    """Return one character for a weight between 0 and 1, blank only for zero."""
    levels = _TENTHS if plain else _EIGHTHS
    return levels[int(np.ceil(weight * (len(levels) - 1) - 1e-3))]


def _print_more(number: int, what: str) -> None:
    if number > 0:
        cli.say(f"... and {number} more {what}; --json has all.")
