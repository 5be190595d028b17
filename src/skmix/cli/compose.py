"""`skmix compose`: samples in, the proportion of each population in each sample out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching

if TYPE_CHECKING:
    from skmix.samples import Study

_of_files = partial(typer.Option, rich_help_panel="The files")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_comparison = partial(typer.Option, rich_help_panel="The comparison")
_output = partial(options.file, rich_help_panel="The output")


@cli.app.command(
    epilog=cli.examples(
        "skmix compose study/*.fcs --table proportions.csv --html study.html",
        "skmix compose study/*.fcs --markers CD3,CD4,CD8 --transform logicle",
        "skmix compose cells.parquet --sample donor --table proportions.parquet",
        "skmix compose study/*.fcs --metadata study.csv --condition arm --pair donor",
        "skmix compose new/*.fcs --model study.skmix --table new.csv --html new.html",
    )
)
@options.with_text
def compose(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES", help="Samples, one file each: tables or FCS; or a folder or pattern."
        ),
    ],
    model: Annotated[
        str | None,
        _of_model(metavar="MODEL", help="Estimate proportions in new samples with this model, unchanged."),
    ] = None,
    sample: Annotated[
        str | None, _of_files(metavar="COLUMN", help="Column of samples in one table, instead of files.")
    ] = None,
    markers: Annotated[
        str | None,
        _of_files(
            metavar="A,B,...",
            help="Columns, or channels by name or marker; by default all but Time and the like.",
        ),
    ] = None,
    compensate: options.Compensate = None,
    transform: options.Transform = None,
    damaged: options.Damaged = "refuse",
    *,
    text: dict[str, Any],
    kernels: Annotated[
        str, _of_model(metavar="auto|N", help="Number of Gaussian kernels that all samples share.")
    ] = "auto",
    populations: Annotated[
        str, _of_model(metavar="auto|N", help="Number of populations that kernels are merged into.")
    ] = "auto",
    join: Annotated[
        list[str] | None,
        _of_model(metavar="A,B,...", help="Names or numbers of populations to make one; can be repeated."),
    ] = None,
    metadata: Annotated[
        str | None,
        _of_comparison(metavar="TABLE", help="What is known about samples, named in its column sample."),
    ] = None,
    condition: Annotated[
        str | None, _of_comparison(metavar="COLUMN", help="Column of two values: compare their samples.")
    ] = None,
    pair: Annotated[
        str | None, _of_comparison(metavar="COLUMN", help="Column of pairs, such as donors: compare within.")
    ] = None,
    covariate: Annotated[
        str | None, _of_comparison(metavar="COLUMN", help="Column to adjust for, such as batches or ages.")
    ] = None,
    reference: Annotated[
        str | None,
        _of_comparison(
            metavar="VALUE", help="Value of --condition, such as control, to take differences from."
        ),
    ] = None,
    out: Annotated[str | None, _output("--out", "-o", help="Study to write; by default study.skmix.")] = None,
    table: Annotated[
        str | None,
        _output(help="Proportions to write: .csv, .tsv (.gz too) or .parquet; - is CSV on standard output."),
    ] = None,
    comparison: Annotated[
        str | None, _output(help="Differences between the conditions to write, in the same formats.")
    ] = None,
    html: Annotated[str | None, _output(help="Page to write, for a browser and for colleagues.")] = None,
    jobs: options.Jobs = -1,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="PyTorch device for the fit, such as cuda.")
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Find the populations that samples share, and their proportions in each sample.

    Each file is a sample, named after it. All samples share Gaussian kernels, in
    different proportions; kernels that no valley of the density divides are
    merged into populations. The table has a line for each sample and population:
    its proportion, a 95 % interval, and the number of cells of the sample.
    Populations are named by the markers that tell them apart, such as CD3⁺ CD4⁺.

    With --condition, a column of --metadata that has two values, the proportions
    of their samples are compared: as they are, within pairs, or adjusted for a
    covariate. Differences are those from --reference or, without it, from the
    value that comes last in sorted order.

    With --model, the kernels of a model stay as they are, and new files get
    proportions of the same populations, on the same scale and markers.

    If no sample has much of two populations, they may be one that shifts between
    samples: a warning says so, with the --join that makes them one.
    """
    n_kernels = options.parse_number("--kernels", kernels)
    n_populations = options.parse_number("--populations", populations)
    names = None if markers is None else [name.strip() for name in markers.split(",") if name.strip()]
    how = options.parse_preparation(compensate, transform)
    how |= {"damaged": damaged, "sample": sample, "text": text}
    how |= {
        "metadata": metadata,
        "condition": condition,
        "pair": pair,
        "covariate": covariate,
        "reference": reference,
    }
    of_fit = {"-o": out, "--kernels": n_kernels, "--populations": n_populations, "--markers": markers}
    for option, value in of_fit.items() if model is not None else ():
        if value is not None:
            cli.stop(f"{option} is for a fit, but --model has been fitted already.")
    if comparison is not None and condition is None:
        cli.stop("--comparison needs --condition.")
    out = out or "study.skmix" if model is None else None
    places = {"-o": out, "--table": table, "--comparison": comparison, "--html": html}
    if [table, comparison, html].count(cli.STANDARD) + as_json > 1:
        cli.stop("standard output takes one of --table -, --comparison -, --html - and --json.")
    if cli.STANDARD in (*files, out):
        cli.stop("- is for the table or the page; samples and models are files.")
    if sample is not None and len(files) > 1:
        cli.stop(f"--sample is for one table, but there are {len(files)} files.")
    _check_places(files, places, model, metadata)
    from skmix.cli import _tables as tables
    from skmix.samples import compose as compose_samples
    from skmix.samples.populations import AlternativesWarning

    given: Any = files[0] if len(files) == 1 else files
    with cli.guarded(), watching() as watch:
        # The result says the same, after joining.
        warnings.simplefilter("ignore", AlternativesWarning)
        if model is None:
            how |= {"n_kernels": n_kernels, "n_populations": n_populations, "random_state": seed}
            study = compose_samples(given, markers=names, device=device, n_jobs=jobs, **how)
        else:
            study = _load(model)
            study.model.set_params(device=device, n_jobs=jobs)
            study = study.apply_to(given, seed=seed, **how)
        if join:
            study = _join(study, join, out)
        with watch.steps("composing", None):
            outcome, proportions, differences = tables.composed(study)
        for note in outcome["notes"]:
            cli.note(note)
        if out is not None:
            tables.write_model(out, study)
        for place, frame in ((table, proportions), (comparison, differences)):
            if place is not None:
                tables.write_table(place, {str(name): frame[name].to_numpy() for name in frame})
    written = [place for place in places.values() if place is not None]
    err = cli.STANDARD in (table, comparison, html)
    if as_json:
        origin = {"model": out or model, "written": written, "seed": seed}
        printing.print_json({**origin, **outcome, **tables.records(proportions, differences)})
    else:
        printing.print_study(outcome, proportions, differences, fitted=model is None, err=err)
    if html is not None:
        tables.write_page(html, study.to_html)
    named = [place for place in written if place != cli.STANDARD]
    if named and not as_json:
        printing.say(f"written into {', '.join(named)}", err=err)


def _check_places(
    files: Sequence[str], places: dict[str, str | None], model: str | None, metadata: str | None
) -> None:
    """Stop if a file, a folder or a library cannot be used as it has to be."""
    from skmix.data.opening import files_of

    with cli.guarded():
        found = (files_of(files[0]) if len(files) == 1 else None) or files
    written, html = [places["--table"], places["--comparison"]], places["--html"]
    cli.look_for("pandas", model=model, data=[*found, metadata], writing=written, html=html)
    from skmix.cli import _tables as tables

    options: dict[Path, str] = {}
    for option, place in places.items():
        tables.check_place(
            place, reading=[*found, model, metadata], table=option in ("--table", "--comparison")
        )
        if place is not None and place != cli.STANDARD:
            other = options.setdefault(Path(place).resolve(), option)
            if other != option:
                cli.stop(f"{other} and {option} name the same file {place}.")


def _join(study: Study, joined: Sequence[str], out: str | None) -> Study:
    """Return a study after joining populations; if that fails, write the study as it is."""
    from skmix.cli import _tables as tables

    try:
        return study.join(*([name.strip() for name in names.split(",")] for names in joined))
    except ValueError as error:
        written = ""
        if out is not None:
            tables.write_model(out, study)
            written = f" The study is in {out}, with all populations apart."
        cli.refuse("--join", f"{error}{written}")


def _load(path: str) -> Study:
    """Return the study in a file, or that of a mixture in a file."""
    from skmix.cli import _tables as tables
    from skmix.model import SharedKernelMixture
    from skmix.samples import Study

    found = tables.load_any(path)
    if isinstance(found, SharedKernelMixture):
        found = Study(found)
    if not isinstance(found, Study):
        has = f"{path} has a {type(found).__name__}"
        cli.stop(f"{has}; skmix compose needs a study or a mixture.", cli.BAD_INPUT)
    return found
