"""`skmix show`: what is in the file of a model or a study."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import print_facts, print_table, say
from skmix.cli._progress import watching


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
    markers, scale, and the proportions of the populations. --html writes a page.
    """
    cli.check_inputs(model)
    from skmix import Study, report
    from skmix.cli import _files as files
    from skmix.cli.compose import print_study, study_as_dict

    files.check_places({"--html": html}, reading=[model])
    name = Path(model).name
    with cli.guarded(), watching() as watch:
        loaded = files.load_any(model)
        if isinstance(loaded, Study):
            with watch.steps("composing", None):
                described = {"kind": "Study", **study_as_dict(loaded)}
            print_content: Any = partial(print_study, loaded, rest="--json")
            draw = partial(loaded.to_html, title=name)
        else:
            described = report.describe(loaded)
            print_content = partial(_print_model, described)
            draw = partial(report.model_page, loaded, title=name)

    def print_all() -> None:
        say(f"{name}: {described['kind']}")
        print_content()

    files.print_and_draw(described, print_all, html, draw, as_json=as_json)


def _print_model(described: dict[str, Any]) -> None:
    """Print what `report.describe` returns for a model."""
    from skmix import report
    from skmix._words import listed
    from skmix.plots.style import short_name

    print_facts(report.facts(described))
    classes = described["classes"]
    if classes:
        say()
        print_table(
            ["class", "rows", "prior"],
            [
                [
                    entry["label"],
                    "" if entry["n_rows"] is None else f"{entry['n_rows']:g}",
                    f"{entry['prior']:.3f}",
                ]
                for entry in classes
            ],
            nouns=("class", "column"),
        )
    for part in described["feature_sets"]:
        say()
        if len(described["feature_sets"]) > 1:
            say(f"feature set {listed(part['features'])}")
        shares, weights = part["shares"], part["weights"]
        print_table(
            ["kernel", "share", *([entry["label"] for entry in classes] or ["weight"])],
            [
                [short_name(k), *(f"{number:.3f}" for number in (shares[k], *weights[k]))]
                for k in sorted(range(len(shares)), key=lambda k: -shares[k])
            ],
            nouns=("kernel", "class"),
        )
