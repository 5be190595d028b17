"""`skmix compose`: samples in, the proportion of each population in each sample out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli._printing import print_facts, print_json, print_table, say, texts_of
from skmix.cli._progress import watching

if TYPE_CHECKING:
    from pandas import DataFrame

    from skmix import Study

# Most unusual samples that are named.
_MAX_SAMPLES = 40

_samples = partial(options.option, panel="The files")
_model = partial(options.option, panel="The model")
_comparison = partial(options.option, panel="The comparison")
_output = partial(options.file, panel="The output")

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILES", help="Samples, one file each: tables or FCS; or a folder or pattern."),
]
Model = Annotated[
    str | None, _model("MODEL", "Estimate proportions in new samples with this model, unchanged.")
]
Sample = Annotated[str | None, _samples("COLUMN", "Column of samples in one table, instead of files.")]
Markers = Annotated[
    str | None,
    _samples("A,B,...", "Columns, or channels by name or marker; by default all but Time and the like."),
]
SkipUnreadable = Annotated[
    bool, _samples("", "Leave out files that cannot be read, with a note.", "--skip-unreadable")
]
Kernels = Annotated[str, _model("auto|N", "Number of Gaussian kernels that all samples share.")]
Populations = Annotated[str, _model("auto|N", "Number of populations that kernels are merged into.")]
Join = Annotated[
    list[str] | None, _model("A,B,...", "Names or numbers of populations to make one; can be repeated.")
]
Metadata = Annotated[
    str | None, _comparison("TABLE", "What is known about samples, named in its column sample.")
]
Condition = Annotated[str | None, _comparison("COLUMN", "Column of conditions, compared with --reference.")]
Pair = Annotated[str | None, _comparison("COLUMN", "Column of pairs, such as donors: compare within.")]
Covariate = Annotated[str | None, _comparison("COLUMN", "Column to adjust for, such as batches or ages.")]
Reference = Annotated[
    str | None, _comparison("VALUE", "Value of --condition, such as control, to take differences from.")
]
Out = Annotated[str | None, _output("Study to write; by default a new one, study.skmix.", "--out", "-o")]
Proportions = Annotated[
    str | None,
    _output("Proportions to write: .csv, .tsv (.gz too) or .parquet; - is CSV on standard output."),
]
Differences = Annotated[
    str | None, _output("Differences between the conditions to write, in the same formats.")
]
Page = Annotated[str | None, _output("Page to write, for a browser and for colleagues.")]
Device = Annotated[str | None, options.option("DEVICE", "PyTorch device for the fit, such as cuda.")]


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
    files: Files,
    model: Model = None,
    sample: Sample = None,
    markers: Markers = None,
    compensate: options.Compensate = None,
    transform: options.Transform = None,
    damaged: options.Damaged = "refuse",
    skip_unreadable: SkipUnreadable = False,
    *,
    text: dict[str, Any],
    kernels: Kernels = "auto",
    populations: Populations = "auto",
    join: Join = None,
    metadata: Metadata = None,
    condition: Condition = None,
    pair: Pair = None,
    covariate: Covariate = None,
    reference: Reference = None,
    out: Out = None,
    table: Proportions = None,
    comparison: Differences = None,
    html: Page = None,
    jobs: options.Jobs = -1,
    device: Device = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Find the populations that samples share, and their proportions in each sample.

    Each file is a sample, named after it. All samples share Gaussian kernels, in
    different proportions; kernels near each other are merged into populations.
    The table has a line for each sample and population: its proportion, a 95 %
    interval, and the number of cells of the sample. Populations are named by the
    markers that tell them apart, such as CD3⁺ CD4⁺.

    With --condition, a column of --metadata, the proportions of samples are
    compared with those of a reference: as they are, within pairs, or adjusted for
    a covariate. Differences are those from --reference or, without it, from the
    value that comes last in sorted order.

    With --model, the kernels of a model stay as they are, and new files get
    proportions of the same populations, on the same scale and markers;
    --populations cuts them finer or coarser.

    If no sample has much of two populations, they may be one that shifts between
    samples: a warning says so, with the --join that makes them one.
    """
    n_kernels = options.parse_number("--kernels", kernels)
    n_populations = options.parse_number("--populations", populations)
    names = None if markers is None else [name.strip() for name in markers.split(",") if name.strip()]
    reading = options.parse_preparation(compensate, transform)
    reading |= {"damaged": damaged, "sample": sample, "text": text, "skip_unreadable": skip_unreadable}
    design: dict[str, Any] = {
        "metadata": metadata,
        "condition": condition,
        "pair": pair,
        "covariate": covariate,
        "reference": reference,
    }
    of_fit = {"-o": out, "--kernels": n_kernels, "--markers": markers}
    for option, value in of_fit.items() if model is not None else ():
        if value is not None:
            cli.stop(f"{option} is for a fit, but --model has been fitted already.")
    if comparison is not None and condition is None:
        cli.stop("--comparison needs --condition.")
    if [table, comparison, html].count(cli.STANDARD) + as_json > 1:
        cli.stop("standard output takes one of --table -, --comparison -, --html - and --json.")
    if cli.STANDARD in (*files, out):
        cli.stop("- is for the table or the page; samples and models are files.")
    if sample is not None and len(files) > 1:
        cli.stop(f"--sample is for one table, but there are {len(files)} files.")
    path_out = out or "study.skmix" if model is None else None
    places = {"-o": path_out, "--table": table, "--comparison": comparison, "--html": html}
    from skmix.data.opening import files_of

    with cli.guarded():
        inputs = [*((files_of(files[0]) if len(files) == 1 else None) or files), model, metadata]
    cli.check_inputs(*inputs)
    import skmix
    from skmix.cli import _files as output
    from skmix.samples.populations import AlternativesWarning

    output.check_places(places, reading=inputs, default="-o" if out is None else None)
    samples: Any = files[0] if len(files) == 1 else files
    with cli.guarded(), watching() as watch:
        # The result says the same, after joining.
        warnings.simplefilter("ignore", AlternativesWarning)
        if model is None:
            study = skmix.compose(
                samples,
                markers=names,
                n_kernels=n_kernels,
                n_populations=n_populations,
                random_state=seed,
                n_jobs=jobs,
                device=device,
                **design,
                **reading,
            )
        else:
            fitted = _study_of(output.load_any(model), model)
            fitted.model.set_params(device=device, n_jobs=jobs)
            if n_populations is not None:
                fitted = fitted.recut(n_populations)
            study = fitted.apply_to(samples, seed=seed, **design, **reading)
        if path_out is not None:
            output.write_model(path_out, study)
        if join:
            # A wrong name does not lose the fit, which has been written.
            try:
                study = study.join(*([name.strip() for name in names.split(",")] for names in join))
            except ValueError as error:
                kept = "" if path_out is None else f" The study is in {path_out}, with all populations apart."
                cli.refuse("--join", f"{error}{kept}")
        with watch.steps("composing", None):
            outcome = study_as_dict(study)
        for note in outcome["notes"]:
            cli.note(note)
        if path_out is not None and join:
            output.write_model(path_out, study)
        if table is not None:
            output.write_table(table, _columns(study.proportions))
        if comparison is not None:
            output.write_table(comparison, _columns(study.compare().table))
    written = [place for place in places.values() if place is not None]
    aside = cli.STANDARD in (table, comparison, html)
    if as_json:
        print_json({"model": path_out or model, "written": written, "seed": seed, **outcome})
    else:
        print_study(study, rest="--table", err=aside)
    if html is not None:
        output.write_page(html, study.to_html)
    named = [place for place in written if place != cli.STANDARD]
    if named and not as_json:
        say(f"written into {', '.join(named)}", err=aside)


def _study_of(loaded: Any, path: str) -> Study:
    """The study in a file, or that of a mixture in a file."""
    from skmix import SharedKernelMixture, Study

    if isinstance(loaded, SharedKernelMixture):
        return Study(loaded)
    if not isinstance(loaded, Study):
        has = f"{path} has a {type(loaded).__name__}"
        cli.stop(f"{has}; skmix compose needs a study or a mixture.", cli.BAD_INPUT)
    return loaded


def _columns(frame: DataFrame) -> dict[str, Any]:
    return {str(name): frame[name].to_numpy() for name in frame}


# ---------------------------------------------------------------- what is printed


def study_as_dict(study: Study) -> dict[str, Any]:
    """What `--json` has of a study: its description and its tables."""
    described = study.describe()
    described["proportions"] = study.proportions.to_dict("records")
    if described["design"] is not None:
        described["comparison"] = study.compare().table.to_dict("records")
    return described


def print_study(study: Study, *, rest: str, err: bool = False) -> None:
    """Print what a study is, its proportions and its comparison; tables only on standard output."""
    from skmix._words import listed

    described = study.describe()
    say("; ".join([repr(study)[1:-1], *described["cuts"]]), err=err)
    print_facts(dict(study.provenance()), err=err)
    if not err:
        say()
        _print_proportions(study.proportions, described["samples"], rest)
    for warning in described["warnings"]:
        say(f"Warning: {warning}", err=err)
    unusual = [sample["sample"] for sample in described["samples"] if sample["unusual"]]
    if unusual:
        say(f"* unusual: {listed(unusual, _MAX_SAMPLES)}", err=err)
    elif any(sample["unusual"] is None for sample in described["samples"]):
        say("unusual samples were not judged: this takes at least 5 samples in the model", err=err)
    if described["design"] is not None and not err:
        _print_differences(
            study.compare().table, described["design"], "--comparison" if rest == "--table" else rest
        )


def _print_proportions(frame: DataFrame, samples: Sequence[dict[str, Any]], rest: str) -> None:
    """Print the proportions in percent; samples are marked that are unusual."""
    from skmix.plots.style import short_name

    part = str(frame.columns[1])  # population or kernel
    shares = 100.0 * frame["proportion"].to_numpy().reshape(len(samples), -1)
    heads = [short_name(name, part) for name in frame[part][: shares.shape[1]]]
    rows = [
        [
            f"{sample['sample']}{' *' if sample['unusual'] else ''}",
            str(sample["cells"]),
            *(f"{share:.1f}" for share in of_sample),
        ]
        for sample, of_sample in zip(samples, shares, strict=True)
    ]
    print_table(["sample", "cells", *heads], rows, nouns=("sample", part), rest=rest)
    say(f"Percent of each sample by {part}.")


def _print_differences(frame: DataFrame, design: dict[str, str | None], rest: str) -> None:
    """Print the table of `Study.compare` in percent, the clearest difference first."""
    part, first = str(frame.columns[0]), next(n for n, name in enumerate(frame) if "proportion" in str(name))
    ordered = frame.sort_values(["q_value", "p_value"], kind="stable")
    percents = [*ordered.columns[first : first + 5]]
    ordered[percents] = (100.0 * ordered[percents]).round(6)
    one, other = (str(name).removeprefix("proportion_") for name in percents[:2])
    if "reference" in ordered:
        one, other = "each value", str(ordered["reference"].iloc[0])
        ordered = ordered.drop(columns="reference").rename(columns={"proportion_reference": other})
    say()
    heads = [str(name).removeprefix("proportion_").removesuffix("_value") for name in ordered]
    print_table(heads, texts_of(ordered), nouns=(part, "column"), rest=rest)
    how = f", within pairs by {design['pair']}" if design["pair"] else ""
    how = f", adjusted for {design['covariate']}" if design["covariate"] else how
    say(f"Percent by {design['condition']}{how}; the clearest difference, {one} − {other}, first.")
