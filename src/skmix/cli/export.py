"""`skmix export`: a model for use without Python."""

from __future__ import annotations

from typing import Annotated

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import say


@cli.app.command(epilog=cli.examples("skmix export flowers.skmix --onnx flowers.onnx"))
def export(
    model: options.Model, onnx: Annotated[str, options.file("ONNX file to write; - is standard output.")]
) -> None:
    """Export a model to ONNX, for use without Python.

    Averages of several models, which skmix fit makes without --kernels, have
    no graph.
    """
    cli.check_inputs(model)
    from skmix.cli import _files as files
    from skmix.data import Recipe

    files.check_places({"--onnx": onnx}, reading=[model])
    with cli.guarded():
        fitted = files.load_model(model)
        graph = fitted.to_onnx()
        files.write_bytes(onnx, graph.SerializeToString(deterministic=True))
    recipe = Recipe.of(fitted)
    columns = {} if recipe.names is None else recipe.kinds
    coded = [name for name, kind in columns.items() if isinstance(kind, list)]
    names = [name for name in columns if name not in coded] or [f"{fitted.n_features_in_} features"]
    aside = onnx == cli.STANDARD
    for name, listed in {"X": names, "categories": coded}.items():
        if name in [entry.name for entry in graph.graph.input]:
            say(f"input {name}: {', '.join(listed)}", err=aside)
    say(f"outputs: {', '.join(entry.name for entry in graph.graph.output)}", err=aside)
    if not aside:
        say(f"written into {onnx}")
