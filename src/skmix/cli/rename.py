"""`skmix rename`: names for the populations of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import say


@cli.app.command(epilog=cli.examples('skmix rename study.skmix "3=CD4 T" "CD3⁻=B cells"'))
def rename(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="Study, as skmix compose writes it.")],
    names: Annotated[
        list[str], typer.Argument(metavar="OLD=NEW", help="Number or name of a population, and its new name.")
    ],
    out: Annotated[
        str | None, options.file("Study to write; by default STUDY itself.", "--out", "-o")
    ] = None,
) -> None:
    """Rename populations of a study.

    Tables, pages and the predictions of new cells have the new names.
    """
    cli.check_inputs(study)
    pairs = [name.partition("=") for name in names]
    for name, (_, sign, _) in zip(names, pairs, strict=True):
        if not sign:
            cli.refuse("OLD=NEW", f"{name!r} has no sign =.")
    old_names = [old.strip() for old, _, _ in pairs]
    if twice := [old for old in old_names if old_names.count(old) > 1]:
        cli.refuse("OLD=NEW", f"{twice[0]!r} is given {old_names.count(twice[0])} names.")
    from skmix import Study
    from skmix.cli import _files as files

    place = out or study
    files.check_places({"-o": place}, reading=[])
    with cli.guarded():
        loaded = files.load_any(study)
        if not isinstance(loaded, Study):
            cli.stop(f"{study} has a {type(loaded).__name__}, which has no populations.", cli.BAD_INPUT)
        loaded.rename({old.strip(): new.strip() for old, _, new in pairs})
        files.write_model(place, loaded)
    if place != cli.STANDARD:
        say(f"written into {place}")
