"""`skmix compose`: samples in, the share of each population in each sample out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from skmix import SharedKernelMixture, SharedKernelMixtureCV, open_rows, report
from skmix.cli import _common as cli
from skmix.cli import _tables as tables
from skmix.cli._progress import Watch, watching
from skmix.estimators.composition import FEWEST_GROUPS
from skmix.estimators.rows import with_features_of
from skmix.io.encoding import listed
from skmix.io.joined import JoinedRows
from skmix.io.opening import files_of
from skmix.io.preparation import AUTO, scale_in_words
from skmix.io.sources import FcsRows
from skmix.plots._models import part_label

_of_files = partial(typer.Option, rich_help_panel="The files")
_of_model = partial(typer.Option, rich_help_panel="The model")
_of_output = partial(typer.Option, rich_help_panel="The output", callback=cli.or_standard)

# Rows from which the number of kernels is chosen and that the page draws, as many of each group.
_SAMPLED = 20_000
_MOST_KERNELS = 100
_MAX_LINES = 20
_MOST_LISTED = 40


@cli.app.command(
    epilog=cli.examples(
        "skmix compose study/*.fcs -o study.skmix --table composition.csv --html study.html",
        "skmix compose study/*.fcs --channels CD3,CD4,CD8 --compensate --transform logicle",
        "skmix compose cells.parquet --group sample --kernels 20 --table composition.parquet",
        "skmix compose new/*.fcs --model study.skmix --table new.csv --html new.html",
    )
)
def compose(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Samples, one file each: FCS, CSV, TSV, Parquet or .npy; or a folder or pattern of them.",
        ),
    ],
    model: Annotated[
        str | None,
        _of_model(metavar="MODEL", help="Compose new samples of the populations of this model; it stays."),
    ] = None,
    group: Annotated[
        str | None,
        _of_files(metavar="COLUMN", help="Groups are in this column of one table, and not a file each."),
    ] = None,
    channels: Annotated[
        str | None,
        _of_files(
            metavar="A,B,...",
            help="Columns to use, or channels of FCS files by name or marker; by default all but Time.",
        ),
    ] = None,
    compensate: tables.Compensate = None,
    transform: tables.Transform = None,
    sep: tables.Sep = None,
    decimal: tables.Decimal = ".",
    encoding: tables.Encoding = None,
    missing: tables.Missing = None,
    skip_bad_files: Annotated[
        bool,
        _of_files(
            "--skip-bad-files",
            help="Leave out files that are damaged, empty or have other columns than most, with a note.",
        ),
    ] = False,
    kernels: Annotated[
        str,
        _of_model(
            metavar="auto|N", help="Number of Gaussian kernels that all groups share; auto chooses it."
        ),
    ] = "auto",
    criterion: Annotated[
        Literal["bic", "stability"] | None,
        _of_model(
            help="What chooses the number of kernels: BIC, the default, or how stable they are as clusters."
        ),
    ] = None,
    populations: Annotated[
        str,
        _of_model(metavar="auto|N", help="Number of populations into which kernels that overlap are merged."),
    ] = "auto",
    prior: Annotated[
        Literal["hierarchical", "none"] | None,
        _of_model(
            help="With the hierarchical prior, groups of few rows borrow from the others, which helps where "
            "kernels are apart; none by default."
        ),
    ] = None,
    out: Annotated[
        str | None,
        _of_output("--out", "-o", metavar="FILE", help="Model file to write; by default model.skmix."),
    ] = None,
    table: Annotated[
        str | None,
        _of_output(
            metavar="FILE",
            help="Composition to write: .csv, .tsv (.gz too) or .parquet; - is CSV on standard output.",
        ),
    ] = None,
    html: Annotated[
        str | None, _of_output(metavar="FILE", help="Page to write, for a browser and for colleagues.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Threads; the model does not depend on it.")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="PyTorch device for the fit, such as cuda.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**32 - 1)] = 0,
    as_json: cli.Json = False,
) -> None:
    """Find the populations that samples share, and how much of each sample they are.

    Each file is a group, named after it. All groups share Gaussian kernels, in
    other proportions; kernels that overlap are merged into populations. The
    table has a line for each group and population: its share, a 95 % interval,
    and the number of rows of the group. Populations are numbered from 0, the
    largest first.

    With --model, the kernels of a model stay as they are, and new files get
    shares of the same populations, on the same scale and channels.
    """
    n_kernels, n_populations = (
        None if given == "auto" else cli.parse_number(option, given, least=1, whole=True)
        for option, given in (("--kernels", kernels), ("--populations", populations))
    )
    if n_kernels is not None and criterion is not None:
        cli.stop("--criterion chooses the number of kernels, but --kernels gives it.", cli.WRONG_USE)
    written = tables.written(False, sep, decimal, encoding, missing)
    names = None if channels is None else [name.strip() for name in channels.split(",") if name.strip()]
    if names == []:
        cli.refuse("--channels", f"{channels!r} names no channel.")
    if jobs == 0:
        cli.refuse("--jobs", "must not be 0; -1 uses all cores.")
    reading = tables.preparation(compensate, transform)
    if model is not None:
        of_fit = {
            "-o": out,
            "--kernels": n_kernels,
            "--populations": n_populations,
            "--criterion": criterion,
            "--channels": channels,
            "--prior": prior,
        }
        for option, given in of_fit.items():
            if given is not None:
                cli.stop(f"{option} is for a fit, but --model has been fitted already.", cli.WRONG_USE)
    else:
        out, prior = out or "model.skmix", prior or "none"
    if [table, html].count(cli.STANDARD) + as_json > 1:
        cli.stop("standard output takes one of --table -, --html - and --json.", cli.WRONG_USE)
    if cli.STANDARD in (*files, out):
        cli.stop("- is for the table or the page; samples and models are files.", cli.WRONG_USE)
    with cli.guarded():
        if group is not None and len(files) > 1:
            cli.stop(f"--group is for one table, but there are {len(files)} files.", cli.WRONG_USE)
        found = _found(files)
    options: dict[Path, str] = {}
    for option, place in {"-o": out, "--table": table, "--html": html}.items():
        tables.check_place(place, reading=[*found, model], table=option == "--table")
        if place is not None and place != cli.STANDARD:
            other = options.setdefault(Path(place).resolve(), option)
            if other != option:
                cli.stop(f"{other} and {option} name the same file {place}.", cli.WRONG_USE)
    with cli.guarded(), watching() as watch:
        fitted: Any = None
        if model is not None:
            fitted = tables.load_model(model)
            if not isinstance(fitted, SharedKernelMixture):
                has = f"{model} has a {type(fitted).__name__}"
                cli.stop(f"{has}; skmix compose needs a model it wrote.", cli.BAD_INPUT)
            for name, own in getattr(fitted, "preparation_", {}).items():
                if reading[name] not in (AUTO, own):
                    cli.stop(f"--{name} differs from the fit of {model}: leave it out.", cli.WRONG_USE)
                reading[name] = AUTO
            known = getattr(fitted, "feature_names_in_", None)
            names = None if known is None else [str(name) for name in known]
        how: dict[str, Any] = {"columns": names, "label": group}
        how |= {"text": written, "on_error": "skip" if skip_bad_files else "raise"}
        samples = _read(watch, found, fitted, seed, **reading, **how)
        search = None
        if model is None:
            fitted, search = _fit(
                samples,
                n_kernels,
                n_populations,
                criterion or "bic",
                weight_prior=None if prior == "none" else prior,
                device=device,
                n_jobs=jobs,
                random_state=seed,
            )
        else:
            fitted.set_params(device=device, n_jobs=jobs)
        with watch.steps("composing", None):
            new: Any = None if model is None else samples.source
            composition = fitted.composition(new)
            places = {name: place for place, name in enumerate(samples.sizes)}
            in_order = composition["group"].map(places).argsort(kind="stable")
            composition = composition.iloc[in_order].reset_index(drop=True)
            judged = len(fitted.classes_) >= FEWEST_GROUPS
            unusual = fitted.unusual_groups(new) if judged else None
        part = "population" if "population" in composition else "kernel"
        flagged = set() if unusual is None else set(unusual.loc[unusual["unusual"], "group"])
        outcome = {
            "model": out or model,
            "written": [place for place in (out, table, html) if place is not None],
            "n_rows": sum(samples.sizes.values()),
            "features": [str(name) for name in getattr(fitted, "feature_names_in_", [])],
            "compensate": samples.settings["compensate"],
            "transform": samples.settings["transform"],
            "n_kernels": len(fitted.means_),
            "n_populations": len(np.unique(fitted.populations_)) if part == "population" else None,
            "search": search,
            "converged": bool(fitted.converged_),
            "n_iter": int(fitted.n_iter_),
            "seed": seed,
            "groups": [
                {"group": str(name), "rows": n_rows, "unusual": name in flagged if judged else None}
                for name, n_rows in samples.sizes.items()
            ],
        }
        if out is not None:
            tables.write_model(out, fitted)
        if html is not None:
            with watch.steps("drawing", None):
                page = report.composition_page(
                    fitted,
                    composition,
                    title=f"Composition of {cli.counted(len(samples.sizes), 'group')}",
                    unusual=unusual,
                    X=samples.X,
                    groups=samples.y,
                    names=samples.settings["labels"],
                    made=_made(outcome, samples, prior),
                    scale=scale_in_words(samples.settings["transform"]),
                    notes=samples.notes,
                )
            tables.write_bytes(html, page.encode())
        if "background" in composition[part].tolist():
            # A column of text has text alone.
            composition[part] = composition[part].astype(str)
        if table is not None:
            tables.write_table(table, {str(name): composition[name].to_numpy() for name in composition})
    if as_json:
        cli.print_json({**outcome, "composition": composition.to_dict("records")})
    else:
        _print(outcome, composition, part, err=cli.STANDARD in (table, html))


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class _Samples:
    """Rows of all groups where they are, and some of them in memory."""

    source: JoinedRows
    sizes: dict[str, int]  # rows of each group
    X: NDArray[np.float64]  # (n, M)
    y: NDArray[Any]  # (n,): the group of each row of X
    settings: dict[str, Any]  # what new samples must have in common with these
    notes: list[str]


def _found(files: Sequence[str]) -> list[str]:
    """Return the files of a folder or pattern, or those that are given."""
    for file in files if len(files) > 1 else ():
        if files_of(file) is not None:
            what = "folder" if Path(file).is_dir() else "pattern"
            raise ValueError(f"{file} is a {what}, which cannot be mixed with other files: give it alone.")
    return [str(file) for file in files_of(files[0]) or files]


def _read(
    watch: Watch,
    files: Sequence[str],
    model: SharedKernelMixture | None,
    seed: int,
    compensate: bool | str,
    **options: Any,
) -> _Samples:
    """Open samples as for a fit, or as a model was fitted, and read them once.

    This checks their values and takes some rows of every group.
    """
    with watch.steps("opening", None), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        source = open_rows(list(files), compensate=compensate, **options)
        source = source if model is None else with_features_of(model, source)
        # Files that disagree are found when the names are needed.
        names = source.feature_names
    assert isinstance(source, JoinedRows)
    notes = []
    for warning in caught:
        cli.note(cli.in_options(warning.message))
        # The page does not say where files are.
        folders = (f"{Path(file).parent}/" for file in files)
        notes.append(reduce(lambda text, folder: text.replace(folder, ""), folders, str(warning.message)))
    parts = [part for part in source.parts.values() if isinstance(part, FcsRows)]
    prepared = {"compensate": False, "transform": "none"} | (source.preparation or {})
    timeless = any(len(part.feature_names) < len(part.file.channels) for part in parts)
    if options["columns"] is None and timeless:
        notes.append("The channel Time is left out.")
        cli.note("the channel Time is left out; --channels can name it.")
    if model is None and compensate == AUTO and prepared["compensate"]:
        notes.append("Files were compensated by their spill-over matrices.")
        cli.note(
            "files are compensated by their spill-over matrices; --no-compensate leaves them as they are."
        )
    markers = dict(zip(parts[0].feature_names, parts[0].markers, strict=True)) if parts else {}
    settings = {
        **prepared,
        "labels": names and [f"{markers[n]} ({n})" if markers.get(n, n) not in ("", n) else n for n in names],
    }
    return _Samples(source, *_sample(watch, source, seed), settings, notes)


def _sample(
    watch: Watch, source: JoinedRows, seed: int
) -> tuple[dict[str, int], NDArray[np.float64], NDArray[Any]]:
    """Return the number of rows of each group, and as many rows X (n, M) of each with their groups (n,)."""
    random = np.random.RandomState(seed)

    def some(n_rows: int) -> NDArray[np.int64]:
        n_each = max(1, _SAMPLED // len(names))
        return random.choice(n_rows, n_each, replace=False) if n_rows > n_each else np.arange(n_rows)

    if source.grouped:
        names = list(source.parts)
        counts = [part.n_rows for part in source.parts.values()]
        starts = np.cumsum([0, *counts[:-1]])
        taken = [start + some(count) for start, count in zip(starts, counts, strict=True)]
    else:
        labels = source.row_labels()
        known = np.array([label is not None and label == label for label in labels.tolist()])
        if not known.all():
            raise ValueError(
                f"column {source.label!r} names no group in {np.count_nonzero(~known)} of {len(known)} rows. "
                "Leave these rows out."
            )
        found, codes, counted = np.unique(labels.tolist(), return_inverse=True, return_counts=True)
        names, counts = found.tolist(), counted.tolist()
        taken = [np.flatnonzero(codes == group)[some(count)] for group, count in enumerate(counts)]
    wanted = np.concatenate(taken)
    groups = np.repeat(np.array(names, dtype=object), [len(own) for own in taken])
    order = np.argsort(wanted)
    rows, start = [], 0
    with watch.steps("reading", None) as progress, closing(source.blocks()) as blocks:
        for block in blocks:
            first, last = np.searchsorted(wanted[order], [start, start + len(block.X)])
            rows.append(np.asarray(block.X[wanted[order][first:last] - start], dtype=np.float64))
            start += len(block.X)
            now = groups[order][min(last, len(groups) - 1)]
            progress(f"{now} ({names.index(now) + 1} of {len(names)})", share=start / source.n_rows)
    return dict(zip(names, counts, strict=True)), np.concatenate(rows), groups[order]


# ---------------------------------------------------------------- the model


def _fit(
    samples: _Samples, n_kernels: int | None, n_populations: int | None, criterion: str, **settings: Any
) -> tuple[SharedKernelMixture, dict[str, Any] | None]:
    """Return the fitted mixture with its populations, and how its number of kernels was chosen."""
    found = None
    if n_kernels is None:
        common = {name: settings[name] for name in ("n_jobs", "random_state")}
        n_kernels, tried = _choose(samples.X, criterion, **common)
        found = {"criterion": criterion, "n_rows": len(samples.X)}
        found |= {"lowest": min(tried), "highest": max(tried)}
    if n_populations is not None and n_populations > n_kernels:
        raise ValueError(f"--populations {n_populations} is more than the {n_kernels} kernels there are.")
    if n_kernels > samples.source.n_rows:
        raise ValueError(f"--kernels {n_kernels} is more than the {samples.source.n_rows} rows there are.")
    mixture = SharedKernelMixture(n_kernels, init="k-means", **settings).fit(samples.source)
    return mixture.sort_kernels().merge_kernels(n_populations=n_populations), found


def _choose(X: NDArray[np.float64], criterion: str, **settings: Any) -> tuple[int, list[int]]:
    """Return the number of kernels of the lowest BIC, or of stable clusters, and those that were tried.

    The rows of all groups together come from the same kernels as those of each.
    """
    settings |= {"covariance_type": "full", "criterion": criterion}
    search = SharedKernelMixtureCV(**settings).fit(X)
    tried = sorted({params["n_kernels"] for params in search.cv_results_["params"]})
    # A search ends at a number that is enough for most data, but cells are of many kinds.
    most = min(_MOST_KERNELS, len(X) // (X.shape[1] + 1))
    while criterion == "bic" and (best := search.best_params_["n_kernels"]) == tried[-1] < most:
        tried.append(min(best + max(1, best // 4), most))
        larger = SharedKernelMixtureCV(n_kernels=tried[-1], **settings).fit(X)
        if larger.best_score_ <= search.best_score_:
            break
        search = larger
    return int(search.best_params_["n_kernels"]), tried


# ---------------------------------------------------------------- the output


def _made(outcome: dict[str, Any], samples: _Samples, prior: str | None) -> list[tuple[str, str]]:
    """Return how a composition was made, for its page."""
    files = [Path(part.name).name for part in samples.source.parts.values()]
    labels = samples.settings["labels"] or [f"{samples.X.shape[1]} columns without names"]
    search = outcome["search"]
    made = [
        ("files", f"{len(files)}: {listed(files, _MOST_LISTED)}"),
        ("rows", f"{outcome['n_rows']:,}"),
        ("groups by", "file" if samples.source.grouped else f"column {samples.source.label}"),
        ("channels", listed(labels, _MOST_LISTED)),
        ("compensated for spill-over", "yes" if outcome["compensate"] else "no"),
        ("transform", scale_in_words(outcome["transform"])),
    ]
    if prior is None:
        return [*made, ("model", f"{Path(outcome['model']).name}; its kernels stayed as they were")]
    return [
        *made,
        ("kernels", f"{outcome['n_kernels']}, {'given' if search is None else _in_words(search)}"),
        ("prior of the weights", prior),
        ("passes of EM", f"{outcome['n_iter']}{'' if outcome['converged'] else ', not converged'}"),
        ("seed", str(outcome["seed"])),
    ]


def _in_words(search: dict[str, Any]) -> str:
    by = "BIC" if search["criterion"] == "bic" else search["criterion"]
    return f"chosen by {by} from {search['lowest']} to {search['highest']} on {search['n_rows']:,} rows"


def _print(outcome: dict[str, Any], composition: Any, part: str, *, err: bool) -> None:
    """Print the outcome in words, and the shares of the first groups and populations."""
    groups, features = outcome["groups"], outcome["features"]
    say = partial(cli.say, err=err)
    say(
        f"{cli.counted(len(groups), 'group')}, {outcome['n_rows']} rows, "
        f"{cli.counted(len(features), 'feature')} ({listed(features, _MOST_LISTED)})"
    )
    compensated = ", compensated for spill-over" if outcome["compensate"] else ""
    say(f"transform {scale_in_words(outcome['transform'])}{compensated}")
    kernels = cli.counted(outcome["n_kernels"], "kernel")
    if outcome["search"] is not None:
        kernels += f" ({_in_words(outcome['search'])})"
    if outcome["n_populations"] is not None:
        kernels += f", merged into {cli.counted(outcome['n_populations'], 'population')}"
    say(kernels)
    if outcome["model"] in outcome["written"]:
        ended = "converged" if outcome["converged"] else "did not converge"
        say(f"{ended} in {cli.counted(outcome['n_iter'], 'pass', 'passes')}")
    if not err:
        say()
        _print_shares(groups, composition, part)
    unusual = [each["group"] for each in groups if each["unusual"]]
    if unusual:
        say(f"* unusual: {listed(unusual, _MOST_LISTED)}")
    elif any(each["unusual"] is None for each in groups):
        say(f"unusual groups were not judged: this takes at least {FEWEST_GROUPS} groups in the model")
    written = [place for place in outcome["written"] if place != cli.STANDARD]
    if written:
        say(f"written into {', '.join(written)}")


def _print_shares(groups: Sequence[dict[str, Any]], composition: Any, part: str) -> None:
    """Print the shares of the first groups and populations in percent."""
    shares = 100.0 * composition["share"].to_numpy().reshape(len(groups), -1)
    terminal = cli.console()
    names = [f"{each['group']}{' *' if each['unusual'] else ''}" for each in groups[:_MAX_LINES]]
    width = max(map(len, [*names, "group"])) + len(f" {max(each['rows'] for each in groups)}") + 3
    n_shown = min(shares.shape[1], max(1, (terminal.width - width) // 6))
    rows = [
        [name, str(each["rows"]), *(f"{share:.1f}" for share in own[:n_shown])]
        for name, each, own in zip(names, groups, shares, strict=False)
    ]
    terminal.print(
        cli.table(["group", "rows", *(part_label(each, part) for each in composition[part][:n_shown])], rows)
    )
    left = {"group": len(groups) - len(names), part: shares.shape[1] - n_shown}
    more = " and ".join(cli.counted(number, f"more {what}") for what, number in left.items() if number > 0)
    cli.say(f"Percent of each group by {part}" + (f"; {more}: --table has all." if more else "."))
