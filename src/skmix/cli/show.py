"""`skmix show`, `skmix export`: what a model is, on the terminal, as a page, as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from skmix import report
from skmix.cli._common import STANDARD, WRONG_USE, Json, app, examples, guarded, print_json, stop, writing
from skmix.cli._tables import (
    Html,
    Model,
    NoHeader,
    Target,
    check_place,
    load_model,
    page_writers,
    read_for,
    read_labelled,
    standard_output,
    write_page,
)
from skmix.cli._watching import watching

_BAR = 6
_MOST_KERNELS = 20
_MOST_SHOWN = 12
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_TENTHS = " .:-=+*#%@"


@app.command(
    epilog=examples(
        "skmix show flowers.skmix",
        "skmix show flowers.skmix --json",
        "skmix show flowers.skmix --html flowers.html --data flowers.csv",
    )
)
def show(
    model: Model,
    html: Html = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Rows to draw on the page, beside the kernels."),
    ] = None,
    target: Target = None,
    no_header: NoHeader = False,
    as_json: Json = False,
) -> None:
    """Show what a model is: features, classes, kernels, weights and settings.

    A line of weights says how much each class uses a kernel. --html writes a
    page of kernels, weights and projections to explore.
    """
    if data is not None and html is None:
        stop("--data is for the page: add --html FILE.", WRONG_USE)
    check_place(html, reading=[model, data])
    with guarded(), watching() as watch:
        fitted = load_model(model)
        described = report.describe(fitted)
        if html is not None:
            X, y = _rows(fitted, data, target, no_header)
            with watch.steps("drawing", None):
                page = page_writers().model_page(fitted, title=Path(model).name, X=X, y=y)
            write_page(html, page)
    if html == STANDARD:
        return
    if as_json:
        print_json(described)
        return
    _print(described, Path(model).name)
    if html is not None:
        typer.echo(f"\nwritten into {html}")


@app.command(epilog=examples("skmix export flowers.skmix --onnx flowers.onnx"))
def export(
    model: Model,
    onnx: Annotated[
        str, typer.Option("--onnx", metavar="FILE", help="ONNX file to write; - is standard output.")
    ],
    float32: Annotated[
        bool, typer.Option("--float32", help="Rows in and probabilities out are of single precision.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export a model for runtimes that know nothing of Python."""
    check_place(onnx, reading=[model])
    if as_json and onnx == STANDARD:
        stop("--json prints a summary, so that the graph needs a file of its own: --onnx FILE.", WRONG_USE)
    with guarded():
        fitted = load_model(model)
        place = None if onnx == STANDARD else onnx
        with writing(onnx):
            exported = fitted.to_onnx(place, dtype=np.float32 if float32 else np.float64)
            if place is None:
                standard_output().write(exported.SerializeToString())
        graph = exported.graph
        names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
        inputs, outputs = ([each.name for each in part] for part in (graph.input, graph.output))
    if as_json:
        features = names or int(fitted.n_features_in_)
        print_json({"file": onnx, "inputs": inputs, "features": features, "outputs": outputs})
        return
    told = [
        f"input X: {', '.join(names) if names else f'{fitted.n_features_in_} features'}",
        f"outputs: {', '.join(outputs)}",
        *([] if place is None else [f"written into {onnx}"]),
    ]
    for line in told:
        typer.echo(line, err=place is None)


def _rows(fitted: Any, data: str | None, target: str | None, no_header: bool) -> tuple[Any, Any]:
    """Return rows to draw, with their labels where the model has classes."""
    if data is None:
        return None, None
    if report.is_classifier(fitted):
        rows, labels, known = read_labelled(fitted, data, target, header=not no_header)
        return rows.X[known], labels[known]
    return read_for(fitted, data, header=not no_header).X, None


def _print(described: dict[str, Any], name: str) -> None:
    console = Console(highlight=False)
    classes, features = described["classes"], described["features"]
    typer.echo(f"{name}: {described['kind']}")
    facts = {
        "features": f"{len(features)}: {_listed(features)}",
        "target": described["target"],
        "kernels": ", ".join(str(group["n_kernels"]) for group in described["groups"]),
        "covariances": described["covariance_type"].replace("_", " "),
        "parameters": described["n_parameters"],
        "fit": ("converged" if described["converged"] else "did not converge")
        + f" in {described['n_iter']} passes"
        + (
            ""
            if described["log_likelihood"] is None
            else f", log-likelihood {described['log_likelihood']:.2f}"
        ),
        "outliers": None
        if described["outlier_threshold"] is None
        else f"log-density below {described['outlier_threshold']:.3f}",
        "temperature": None if described["temperature"] == 1.0 else f"{described['temperature']:.3g}",
        "settings": ", ".join(f"{key}={value}" for key, value in described["settings"].items()) or None,
    }
    for key, fact in facts.items():
        if fact is not None:
            console.print(f"  {key:<12}{fact}", soft_wrap=True, markup=False)
    if classes:
        shown = _table(["class", "rows", "prior"])
        for each in classes[:_MOST_KERNELS]:
            shown.add_row(
                each["label"], "" if each["n_rows"] is None else f"{each['n_rows']:g}", f"{each['prior']:.3f}"
            )
        console.print()
        console.print(shown)
        _print_more(len(classes) - _MOST_KERNELS, "classes")
    labels = [each["label"] for each in classes] or ["weight"]
    for group in described["groups"]:
        console.print()
        if len(described["groups"]) > 1:
            console.print(f"group of {_listed(group['features'])}", markup=False)
        _print_weights(console, group, labels)


def _print_weights(console: Console, group: dict[str, Any], labels: list[str]) -> None:
    """Print how much each class uses each kernel, the kernels with most rows first."""
    weights, shares = np.array(group["weights"]), np.array(group["shares"])
    order = np.argsort(-shares, kind="stable")[:_MOST_KERNELS]
    plain = console.options.ascii_only
    # Two spaces stand between columns.
    room = console.width - len("kernel  share  ")
    wide = sum(max(len(label), _BAR + 6) + 2 for label in labels) <= room
    shown = _table(["kernel", "share"])
    if wide or sum(len(label) + 2 for label in labels) <= room:
        for label in labels:
            shown.add_column(label, no_wrap=True, justify="left" if wide else "center")
    else:
        first = f"the first {room - 1} classes" if len(labels) >= room else "all classes"
        shown.add_column(f"a place for each of {first}", no_wrap=True)
    for kernel in order:
        cells = [_level(weight, plain) for weight in weights[kernel]]
        if wide:
            cells = [f"{weight:.3f} {_bar(weight, plain)}" for weight in weights[kernel]]
        elif len(shown.columns) == 3:
            cells = ["".join(cells[: room - 1])]
        shown.add_row(str(kernel + 1), f"{shares[kernel]:.3f}", *cells)
    console.print(shown)
    _print_more(len(weights) - _MOST_KERNELS, "kernels")


def _bar(weight: float, plain: bool) -> str:
    """Return a bar whose length is a weight between 0 and 1."""
    eighths = round(weight * _BAR * 8)
    if plain:
        return "#" * round(eighths / 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _level(weight: float, plain: bool) -> str:
    """Return one character for a weight between 0 and 1; none but a zero looks like one."""
    levels = _TENTHS if plain else _EIGHTHS
    return levels[int(np.ceil(weight * (len(levels) - 1) - 1e-3))]


def _print_more(number: int, what: str) -> None:
    if number > 0:
        typer.echo(f"... and {number} more {what}; --json has all.")


def _listed(names: list[str]) -> str:
    more = f" ... ({len(names)} in all)" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more


def _table(headings: list[str]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        shown.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return shown
