"""Write the tables of measurements, and the commands of the command line, into the pages.

    python docs/write_tables.py

or ``make tables``. A page has a place for each between two comments, ``<!-- speed:begin -->`` and
``<!-- speed:end -->``; what is between them is replaced by what the function of that name returns. So no
number that was measured is typed, and a test fails where a page and benchmarks/results disagree.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import linear_regression, mean, median, stdev
from typing import Any

from skmix.paper.variants import LABELS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Where the comparison of classifiers is.
sys.path.append(str(ROOT / "benchmarks"))
from recording import bold_best, compared_table  # noqa: E402

PLACE = re.compile(
    r"^<!-- ([a-z-]+):begin -->\n(.*?)^<!-- \1:end -->$", re.MULTILINE | re.DOTALL
)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], compared: Sequence[str] = ()
) -> str:
    """Return a table in Markdown; in each row the least value of the compared columns is bold."""
    return compared_table("", headings, rows, compared=compared).markdown("")


def read(name: str) -> Any:
    """Return what a benchmark has written."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def thousands(number: float) -> str:
    """Return a whole number with spaces between its thousands."""
    return f"{number:,.0f}".replace(",", "\u202f")


def in_seconds(number: float) -> str:
    """Return seconds with at least two digits that count."""
    digits = next(
        (n for n, most in ((4, 0.01), (3, 0.1), (2, 10.0)) if number < most), 1
    )
    return f"{number:.{digits}f} s"


def answer() -> str:
    """Return times of whole default fits beside scikit-learn's, and the likelihoods that they reach."""
    found, rows = read("answer.json"), []
    for row in found["problems"]:
        ours, peer = row["skmix"], row.get("scikit-learn")
        line = [row["name"], "", in_seconds(ours["wall"]), "", "", ""]
        if peer is not None:
            line[1] = in_seconds(peer["wall"])
            line[3] = times(peer["wall"] / ours["wall"])
            more = row["more_seeds"]
            line[5] = f"{more['difference']:+.4f} ± {more['error']:.4f}"
            if row["reached_in"] == row["seeds"]:
                line[4] = times(peer["wall"] / row["reached"])
        rows.append(line)
    headings = ["problem", "scikit-learn", "skmix", "times faster"]
    headings += ["until scikit-learn's likelihood", "likelihood"]
    machine = found["machine"]
    seeds = [row["seeds"] for row in found["problems"]]
    further = [
        row["more_seeds"]["seeds"] for row in found["problems"] if "more_seeds" in row
    ]
    return "\n".join(
        [
            table(headings, rows),
            "",
            f"Medians of {min(seeds)} to {max(seeds)} seeds on {machine['cores']} cores of "
            f"{machine['processor']}, scikit-learn {machine['scikit-learn']}; the last column is the mean "
            "difference from scikit-learn's log-likelihood over "
            f"{min(further)} to {max(further)} further "
            "seeds, in nats a row.",
            *drop_ins(),
        ]
    )


def drop_ins() -> list[str]:
    """Return the table of whole fits of the drop-in in fresh processes."""
    found = read("drop_in.json")
    rows = [
        [
            row["name"],
            in_seconds(row["scikit-learn"]["wall"]),
            in_seconds(row["drop-in"]["wall"]),
            times(row["scikit-learn"]["wall"] / row["drop-in"]["wall"]),
            in_seconds(row["drop-in"]["k-means"]),
            in_seconds(row["skmix"]["wall"]),
            times(row["scikit-learn"]["wall"] / row["skmix"]["wall"]),
        ]
        for row in found["problems"]
    ]
    machine, repeats = found["machine"], [row["repeats"] for row in found["problems"]]
    apart = max(row["apart"] for row in found["problems"])
    headings = ["problem", "scikit-learn", "`GaussianMixture`", "times faster"]
    headings += ["of this, k-means", "`SharedKernelMixture`", "times faster"]
    return [
        "",
        "`python benchmarks/drop_in.py` times the drop-in, `skmix.GaussianMixture`, each fit in a fresh "
        "process that has fitted nothing else; times differ from those above, where fits follow each other "
        "in one process. The drop-in begins with scikit-learn's own k-means and makes the same "
        f"passes; log-densities of rows differ by at most {apart:.0e} nats.",
        "",
        table(headings, rows),
        "",
        f"Medians of {min(repeats)} to {max(repeats)} seeds on {machine['cores']} cores of "
        f"{machine['processor']}, scikit-learn {machine['scikit-learn']}.",
    ]


def speed() -> str:
    """Return times of whole fits beside scikit-learn's."""
    found = read("speed.json")
    rows = [
        [
            f"{row['covariances']}, N={row['rows'] // 1000}k, M={row['features']}, K={row['kernels']}, "
            f"{spread}",
            f"{row['sklearn_1_ms']:.0f} ms",
            f"{row['skmix_1_ms']:.1f} ms",
            times(row["ratio_1"]),
            f"{row['skmix_all_ms']:.1f} ms",
        ]
        for spread, fits in found["fits"].items()
        for row in fits
    ]
    rows += [
        [
            f"one of 200 starts in a batch: N=1000, M={row['features']}, K=10, 10 classes",
            f"{row['sklearn_us']:.0f} µs",
            f"{row['skmix_1_us']:.0f} µs",
            times(row["ratio_1"]),
            f"{row['skmix_all_us']:.0f} µs",
        ]
        for row in found["starts"]
    ]
    iris, memory, machine = found["iris"], found["memory_mb"], found["machine"]
    headings = [
        "a pass of a whole fit",
        "scikit-learn",
        "skmix",
        "ratio",
        "skmix, all cores",
    ]
    return "\n".join(
        [
            table(headings, rows, headings[1:3]),
            "",
            f"Measured on {machine['cores']} cores of {machine['processor']}, Python {machine['python']}, "
            f"NumPy {machine['numpy']}, scikit-learn {machine['sklearn']}.",
            "",
            f"A whole fit of iris takes {iris['drop_in_ms']:.1f} ms as a drop-in and "
            f"{iris['shared_kernel_mixture_ms']:.1f} ms as `SharedKernelMixture` (scikit-learn "
            f"{iris['sklearn_ms']:.1f} ms). A fit of 1M × 16 with 16 kernels needs "
            f"{memory['mixture']:.0f} MiB beyond its data on two threads, "
            f"{memory['labelled']:.0f} MiB with labels, {memory['drop-in']:.0f} MiB as a "
            f"drop-in (scikit-learn {memory['sklearn']:.0f} MiB).",
        ]
    )


def peers() -> str:
    """Return the range of the ratios to other libraries in a sentence."""
    found = read("peers.json")
    fewest = min(row["rows"] for row in found["cases"])
    small, large = (
        [row for row in found["cases"] if (row["rows"] == fewest) == is_small]
        for is_small in (True, False)
    )
    several, lost = [], []
    for name in found["cases"][0]["ratios"]:
        ratios = [row["ratios"][name]["one"] for row in large]
        several.append(
            f"{name} {found['versions'][name]} {min(ratios):.1f} to {max(ratios):.1f}"
        )
        worst = min(row["ratios"][name]["one"] for row in small)
        if worst < 1.0:
            lost.append(f"{name} up to {1.0 / worst:.1f}")
    features = [row["features"] for row in large]
    return (
        f"A pass with full covariances of {min(features)} to {max(features)} features takes other libraries "
        f"several times as long on one core: {', '.join(several)} times."
        + (
            f" On {fewest} rows they are quicker: {', '.join(lost)} times."
            if lost
            else ""
        )
    )


def other_libraries() -> str:
    """Return how many times as long a pass of other libraries takes."""
    found = read("peers.json")
    names, machine, versions = (
        list(found["cases"][0]["ratios"]),
        found["machine"],
        found["versions"],
    )
    columns = [(name, on) for name in names for on in found["cases"][0]["ratios"][name]]
    rows = [
        [
            f"N={thousands(row['rows'])}, M={row['features']}, K={row['kernels']}, {row['clusters']}",
            *(f"{row['ms']['skmix'][on]:.1f} ms" for on in ("one", "all")),
            *(times(row["ratios"][name][on]) for name, on in columns),
        ]
        for row in found["cases"]
    ]
    cores = {"one": "one core", "all": f"{machine['cores']} cores"}
    headings = [
        "full covariances",
        *(
            f"{name}, {cores[on]}"
            for name, on in (("skmix", "one"), ("skmix", "all"), *columns)
        ),
    ]
    used = ", ".join(
        f"{name} {own}"
        for name, own in versions.items()
        if own is not None and name != "skmix"
    )
    missing = [name for name, own in versions.items() if own is None]
    return "\n".join(
        [
            table(headings, rows),
            "",
            f"In bold: quicker than skmix. Measured on {machine['processor']}, "
            f"Python {machine['python']}, {used}"
            + (f" (JAX {machine['jax']})." if "jax" in machine else ".")
            + (f" Not installed: {', '.join(missing)}." if missing else ""),
        ]
    )


def times(ratio: float) -> str:
    """Return how many times faster something is; a ratio below 1, a loss, is bold."""
    return f"{ratio:.1f}×" if ratio >= 1 else f"**{ratio:.2f}×**"


def study() -> str:
    """Return runs per second of the paper's study."""
    measured = read("study.json")
    methods = list(measured["main_study_seconds"])
    rows = [
        bold_best(
            [row["variant"], *(f"{row[method]:.0f}" for method in methods)],
            range(1, len(methods) + 1),
            max,
        )
        for row in measured["one_process"]
    ]
    return table(
        ["runs a second, one process", *(LABELS[method] for method in methods)], rows
    )


def device() -> str:
    """Return times and errors of a pass on an accelerator."""
    measured = read("device.json")
    passes = [
        row for row in measured["passes"] if row["clusters"] == "of unit variance"
    ]
    precisions = list(dict.fromkeys(row["precision"] for row in passes))
    by_size: dict[tuple[int, int, int], dict[str, dict[str, Any]]] = {}
    for row in passes:
        by_size.setdefault((row["rows"], row["features"], row["kernels"]), {})[
            row["precision"]
        ] = row
    low = [name for name in precisions if name != "float64"]
    rows = [
        [
            f"{thousands(n)} × {m}, {k}",
            *(f"{found[name]['median_ms']:.1f} ms" for name in precisions),
            *(f"{found[name]['error_of_means_in_deviations']:.0e}" for name in low),
        ]
        for (n, m, k), found in by_size.items()
    ]
    headings = [
        "rows × features, kernels",
        *precisions,
        *(f"error of means, {name}" for name in low),
    ]
    return "\n".join(
        [
            table(headings, rows, precisions),
            "",
            f"Medians on {measured['device']}, PyTorch {measured['torch']}; errors of means after a pass, "
            "in standard deviations, against float64.",
        ]
    )


def seconds() -> str:
    """Return the seconds of some default fits, all of one run, for the README."""
    sides = {"scikit-learn": "scikit-learn", "drop-in": "`GaussianMixture`"}
    sides["skmix"] = "`SharedKernelMixture`"
    rows = [
        [
            row["name"].replace("x", " × "),
            *(in_seconds(row[side]["wall"]) for side in sides),
        ]
        for row in read("drop_in.json")["problems"]
        if "x" in row["name"]
    ]
    return table(["rows × features", *sides.values()], rows)


def fits() -> str:
    """Return times of passes and starts of whole fits on an accelerator."""
    measured, by_case = read("device.json"), {}
    for row in measured["fits"]:
        name = f"{row['covariances']}, {thousands(row['rows'])} × {row['features']}, {row['kernels']}"
        by_case.setdefault((name, row["precision"]), {})[row["clusters"]] = row
    rows = [
        [
            f"{name}, {precision}",
            *(f"{found[kind]['pass_ms']:.1f} ms" for kind in ("overlapping", "apart")),
            *(f"{found[kind]['start_ms']:.0f} ms" for kind in ("overlapping", "apart")),
            *(
                f"{found[kind]['default_fit_s']:.2f} s"
                for kind in ("overlapping", "apart")
            ),
        ]
        for (name, precision), found in by_case.items()
    ]
    headings = [
        f"{what}, {kind}"
        for what in ("pass", "start", "default fit")
        for kind in ("overlapping", "apart")
    ]
    return "\n".join(
        [
            table(["covariances, rows × features, kernels", *headings], rows),
            "",
            f"Whole fits from host arrays on {measured['device']}, PyTorch {measured['torch']}, of clusters "
            "that overlap and that lie apart: a median pass, the start, and a whole fit with defaults, in "
            "which rows are sent to the device, too.",
        ]
    )


def streaming() -> str:
    """Return times of a pass over rows that are streamed to an accelerator."""
    kinds = ("array", "file")
    rows = [
        [
            re.sub(r"^\d+", lambda found: thousands(int(found[0])), size).replace(
                " x ", " × "
            ),
            f"{own['in_memory_ms']:.0f} ms",
            *(f"{own[kind]['ms']:.0f} ms" for kind in kinds),
            *(f"{own[kind]['gigabytes_per_second']:.0f} GB/s" for kind in kinds),
        ]
        for size, own in read("device_features.json")["streaming"].items()
    ]
    headings = [
        "rows × features, kernels",
        "a pass, on the device",
        "from an array",
        "from a file",
    ]
    return table([*headings, "copied from an array", "from a file"], rows)


def cores() -> str:
    """Return times of a pass by the number of threads."""
    found = read("cores.json")
    threads = list(found["cases"][0]["ms"])
    rows = [
        [
            f"{row['covariances']}, {thousands(row['rows'])} × {row['features']}, K={row['kernels']}",
            *(f"{row['ms'][n]:.1f} ms" for n in threads),
            times(row["ms"][threads[0]] / row["ms"][threads[-1]]),
        ]
        for row in found["cases"]
    ]
    return table(["threads", *threads, f"{threads[-1]} over 1"], rows)


def files() -> str:
    """Return the speed of passes over files beside that in memory, and the peak memory."""
    found = read("out_of_core.json")
    rows = [
        [
            f"{thousands(row['rows'])} × {row['features']}, K={row['kernels']}, threads: {row['jobs']}",
            f"{1e3 * row['seconds']['memory']:.0f} ms",
            *(
                f"{100 * row['speed_of_memory'][name]:.0f} %"
                for name in ("npy", "parquet")
            ),
        ]
        for row in found["speed"]
    ]
    headings = [
        "rows × features",
        "a pass in memory",
        "speed from .npy",
        "from Parquet",
    ]
    memory = found["memory"]
    return "\n".join(
        [
            table(headings, rows),
            "",
            f"A fit of a .npy file of {memory['gigabytes']:.1f} GB, 16 features and 16 kernels, needs at "
            f"most {memory['peak_mb']:.0f} MiB of memory, libraries included.",
        ]
    )


def traffic() -> tuple[float, float]:
    """Return the bytes of a pass on two workers by a line through blocks of one size: in all, and a block."""
    found = read("cluster.json")["bytes"][3:]
    slope, intercept = linear_regression(
        [row["blocks"] for row in found], [row["bytes_per_pass"] for row in found]
    )
    return intercept, slope


def cost_of_a_pass() -> str:
    """Return what a pass on a cluster costs, and what its bytes consist of."""
    found = read("cluster.json")
    one, tiny, two, _ = found["passes"]
    same_number, same_size = found["bytes"][:3], found["bytes"][3:]
    rows, blocks = (
        ", ".join(
            f"{row['bytes_per_pass'] / 1e3:.0f} kB ({thousands(row[key])})"
            for row in part
        )
        for part, key in ((same_number, "rows"), (same_size, "blocks"))
    )
    fixed, of_a_block = traffic()
    work, answer = found["bytes_of_work"], found["bytes_of_answer"]
    lines = [
        [f"over the network, {same_number[0]['blocks']} blocks, by rows", rows],
        [
            f"the same, blocks of {thousands(same_size[0]['rows'] / same_size[0]['blocks'])} rows, by blocks",
            blocks,
        ],
        [
            "as a line has it",
            f"{fixed / 1e3:.0f} kB, and {of_a_block / 1e3:.1f} kB a block",
        ],
        [
            "the work, and a worker's answer",
            f"{work / 1e3:.0f} kB and {answer / 1e3:.0f} kB",
        ],
        [
            f"seconds for {thousands(one['rows'])} rows, one worker process and two",
            f"{one['seconds']:.2f} and {two['seconds']:.2f}, "
            f"{one['seconds'] / two['seconds']:.2f} times as fast",
        ],
        [
            "one worker, a row; rows in memory without a cluster",
            f"{1e9 * one['seconds'] / one['rows']:.0f} ns; "
            f"{1e9 * found['in_memory_seconds_per_row']:.0f} ns",
        ],
        [
            f"scheduling a block ({tiny['blocks']} blocks of next to no rows)",
            f"{1e3 * tiny['seconds'] / tiny['blocks']:.1f} ms",
        ],
    ]
    heading = (
        f"a pass: {found['n_features']} features, {found['n_kernels']} kernels, full covariances, one start; "
        f"{found['machine']}"
    )
    known = 3 * work + 4 * answer
    return "\n".join(
        [
            table([heading, "measured"], lines),
            "",
            f"Of the {fixed / 1e3:.0f} kB, {known / 1e3:.0f} kB are three transfers of the work (client to "
            "scheduler, scheduler to one worker, that worker to the other) and four of answers (each worker "
            "to the scheduler, and on to the client); the rest are Dask's messages.",
        ]
    )


def terabyte() -> str:
    """Return what a pass over a terabyte on a hundred workers would take, by what was measured on two."""
    found = read("cluster.json")
    one, tiny, *_ = found["passes"]
    fixed, of_a_block = traffic()
    n_rows, n_blocks, n_workers = 1e12 / (8 * found["n_features"]), 1e12 / 256e6, 100
    compute = n_rows * one["seconds"] / one["rows"]
    scheduling = n_blocks * tiny["seconds"] / tiny["blocks"]
    n_bytes = n_workers * fixed / 2 + n_blocks * of_a_block
    seconds = [compute / n + scheduling for n in (n_workers, 10 * n_workers)]
    return "\n".join(
        [
            f"A terabyte of float64 with {found['n_features']} features is {n_rows / 1e9:.1f} · 10⁹ rows, in "
            f"{thousands(n_blocks)} blocks of 256 MB; each of a hundred workers holds 10 GB.",
            "",
            f"- Computing: {n_rows / 1e9:.1f} · 10⁹ rows · {1e9 * one['seconds'] / one['rows']:.0f} ns = "
            f"{thousands(compute)} s of one core, {compute / n_workers:.0f} s on a hundred.",
            f"- Scheduling: {thousands(n_blocks)} blocks · {1e3 * tiny['seconds'] / tiny['blocks']:.1f} ms = "
            f"{scheduling:.1f} s, if none of it happened while workers compute.",
            f"- Network: {n_workers} · {fixed / 2e3:.0f} kB + {thousands(n_blocks)} · "
            f"{of_a_block / 1e3:.1f} kB = {n_bytes / 1e6:.0f} MB; through one link of 1 Gbit/s, "
            f"{8 * n_bytes / 1e9:.2f} s.",
            "",
            f"A pass takes about {seconds[0]:.0f} s, {100 * compute / n_workers / seconds[0]:.0f} % of it "
            f"computing; a hundred passes take {seconds[0] / 36:.1f} hours. Ten times as many workers make "
            f"it {seconds[1]:.0f} s, of which scheduling takes {100 * scheduling / seconds[1]:.0f} %: blocks "
            "should then be larger.",
        ]
    )


def spark() -> str:
    """Return the same fit, and fits as by default, on Dask and on Spark."""
    found = read("spark.json")
    default = {
        side: {name: mean(fit[name] for fit in fits) for name in fits[0]}
        for side, fits in found["default"].items()
    }
    both = (found["dask"], found["spark"]), (default["dask"], default["spark"])

    def compared_row(number: int, label: str, name: str, form: str) -> list[str]:
        one, other = (side[name] for side in both[number])
        ratio = times(other / one) if form.endswith("s") else ""
        return [label, form.format(one), form.format(other), ratio]

    versions = found["versions"]
    native = "with" if versions["native_blas"] else "without"
    sides = ["skmix on Dask", "Spark ML", "ratio"]
    same = (
        f"the same fit: {thousands(found['n_rows'])} rows in {found['n_files']} files, "
        f"{found['n_passes']} passes from one start"
    )
    own = (
        f"as by default: {thousands(found['default_rows'])} rows, mean of "
        f"{len(found['default']['dask'])} seeds"
    )
    units = (
        f"log-likelihood of a row in units of the deviation: {thousands(found['units_rows'])} rows, "
        f"{found['n_passes']} passes from one start"
    )
    likelihood = "mean log-likelihood of a row", "log_likelihood"
    kilobytes = f"{found['dask']['pass_bytes'] / 1e3:.0f} kB"
    parts = [
        table(
            [same, *sides],
            [
                compared_row(0, "from files to model", "processor", "{:.1f} s"),
                compared_row(0, "a pass", "pass_processor", "{:.2f} s"),
                ["over the network in a pass", kilobytes, "", ""],
                compared_row(0, *likelihood, "{:.6f}"),
            ],
        ),
        table(
            [own, *sides],
            [
                compared_row(1, "from files to model", "processor", "{:.1f} s"),
                compared_row(1, *likelihood, "{:.3f}"),
                [
                    "of each seed",
                    *(
                        ", ".join(f"{fit['log_likelihood']:.3f}" for fit in fits)
                        for fits in found["default"].values()
                    ),
                    "",
                ],
            ],
        ),
        f"{found['n_features']} features, {found['n_kernels']} kernels, full covariances; "
        f"{found['machine']}; Dask {versions['dask']} with two worker processes of one thread, Spark "
        f"{versions['pyspark']} on two threads of Java {versions['java']}, {native} native BLAS.",
        table(
            [units, "skmix on Dask", "Spark ML"],
            [
                [
                    f"{case['n_features']} features, deviation {case['unit']:g}",
                    *(
                        f"{case['log_likelihood'][side]:.3f}"
                        for side in ("dask", "spark")
                    ),
                ]
                for case in found["units"]
            ],
        ),
    ]
    return "\n\n".join(parts)


def spark_second() -> str:
    """Return where a second run of the same fit, in other units, differs from the first."""
    first, second = read("spark.json"), read("spark_second.json")
    ours, theirs = second["dask"], second["spark"]
    ratios = [
        theirs["processor"] / ours["processor"],
        first["spark"]["processor"] / first["dask"]["processor"],
    ]
    return (
        "A second run, while the machine was busier, had rows in units ten times smaller: log-likelihoods "
        f"{ours['log_likelihood']:.6f} and {theirs['log_likelihood']:.6f}, processor time from files to "
        f"model {ours['processor']:.1f} s and {theirs['processor']:.1f} s. The ratio is {ratios[0]:.1f}, not "
        f"{ratios[1]:.1f}, and {ours['pass_bytes'] / 1e6:.1f} MB went over the network in a pass, not "
        f"{first['dask']['pass_bytes'] / 1e3:.0f} kB, more than the messages of a pass need. The likely "
        "cause is Dask's work stealing, which moves blocks from a worker that is late to another; "
        "`distributed.scheduler.work-stealing: false` turns it off."
    )


def killed_worker() -> str:
    """Return what became of a fit whose worker was killed."""
    found = read("spark.json")
    killed = found["killed"]
    number, seconds = killed["killed_in_pass"], killed["seconds_of_passes"]
    # The first of these is that of the second pass.
    before, during, after = (
        seconds[: number - 2],
        seconds[number - 2],
        seconds[number - 1 :],
    )
    more = sum(seconds) - len(seconds) * median(before)
    return (
        f"Measured: {thousands(found['n_rows'])} rows in {found['n_files']} Parquet files, two workers. One "
        f"gets SIGKILL in the midst of pass {number} of {killed['passes']}. Passes before it take "
        f"{median(before):.1f} s, that one takes {during:.1f} s, and those after it take "
        f"{', '.join(f'{each:.1f}' for each in after)} s: {more:.1f} s are lost. The parameters "
        f"differ from those of an undisturbed fit by at most {killed['difference']:.0e}."
    )


def accuracy() -> str:
    """Return errors, log-losses and calibration of all classifiers of the comparison, with mean ranks."""
    return compared("ranks", "error", "log_loss", "calibration_error")


def standings() -> str:
    """Return the error of shared kernels beside that of the best other classifier."""
    return compared("standings")


def ranks() -> str:
    """Return the mean ranks of shared kernels, and of the best others, in a sentence."""
    from comparison import half_of, mean_ranks, summarise

    judged = [
        each
        for each in summarise(outcomes("accuracy.jsonl"))
        if half_of(each.data) == "judging"
    ]
    found = {
        said: mean_ranks(judged, measure)
        for measure, said in (("error", "test error"), ("log_loss", "log-loss"))
    }
    own, others = [], []
    for said, every in found.items():
        # Those of other packages: ours may be there by default settings too.
        theirs = [name for name in every if not name.startswith("shared kernels")]
        best = min(theirs, key=every.__getitem__)
        own.append(f"{every['shared kernels']:.1f} by {said}")
        others.append(f"{every[best]:.1f} by {said} ({best})")
    return (
        f"Among {len(found['log-loss'])} classifiers, on the {len({each.data for each in judged})} data sets "
        "that had no part in choosing its settings, `SharedKernelClassifierCV` has a mean rank of "
        f"{' and '.join(own)}. The best others have {' and '.join(others)}."
    )


def default_classifier() -> str:
    """Return how the default classifier compares with discriminant analyses, in sentences."""
    from comparison import SETS_BY_PART, half_of, summarise

    errors: dict[str, dict[str, float]] = {}
    for each in summarise(outcomes("accuracy.jsonl")):
        errors.setdefault(each.data, {})[each.classifier] = each.values["error"]
    # Means of the same errors may differ in their last digit.
    above = {
        data: round(
            100 * (own["shared kernels, default"] - min(own["LDA"], own["QDA"])), 6
        )
        for data, own in errors.items()
    }
    parts = {
        part: {data: value for data, value in above.items() if half_of(data) == part}
        for part in SETS_BY_PART
    }
    better = {
        part: f"{sum(value < 0.0 for value in own.values())} of the {len(own)}"
        for part, own in parts.items()
    }
    most = {part: max(own, key=own.__getitem__) for part, own in parts.items()}
    tables = max(most["development"], most["judging"], key=above.__getitem__)
    samples = most["samples"]
    return (
        "`SharedKernelClassifier()`, which chooses nothing by cross-validation, errs less than both linear "
        f"and quadratic discriminant analysis on {better['development']} data sets on which its defaults "
        f"were chosen, on {better['judging']} of the judging half and on {better['samples']} sets of cells. "
        f"On tables it is at most {above[tables]:.1f} points above the better of the two ({tables}), on "
        f"cells of held-out samples {above[samples]:.1f} ({samples.partition('[')[0]})."
        f"\n\n{seconds_of_classifiers()}"
    )


def seconds_of_classifiers() -> str:
    """Return the range of the seconds of a search and of a default fit on small and on large sets."""
    from comparison import summarise

    found = outcomes("accuracy.jsonl")
    n_rows = {each.data: each.n_train for each in found}
    said = []
    for name in ("shared kernels", "shared kernels, default"):
        own = [
            (n_rows[each.data], each.values["fit_seconds"])
            for each in summarise(found)
            if each.classifier == name
        ]
        for fewest, most in ((0, 999), (2900, 3100)):
            times = [time for rows, time in own if fewest <= rows <= most]
            said.append(f"{min(times):.2f} to {max(times):.2f} s")
    few = [rows for rows in n_rows.values() if rows < 1000]
    return (
        f"Seconds of one core: with {min(few)} to {max(few)} training rows `SharedKernelClassifierCV` takes "
        f"{said[0]} and `SharedKernelClassifier()` {said[2]}, with 3000 rows {said[1]} and {said[3]}."
    )


def gaps() -> str:
    """Return how many times as long as with complete rows passes, fits and scores take."""
    by_structure: dict[str, dict[str, dict[str, float]]] = {}
    for row in read("missing.json"):
        by_structure.setdefault(row["covariance_type"], {})[row["gaps"]] = row
    rows = [
        [
            name,
            *(
                f"{own[gaps][f'{what}_ratio']:.1f}"
                for gaps in ("few", "many")
                for what in ("pass", "fit", "score")
            ),
        ]
        for name, own in by_structure.items()
    ]
    few, many = (own["patterns"] for own in list(by_structure["full"].values())[1:])
    headings = [f"pass, {few} patterns", "fit", "scores"]
    headings += [f"pass, {many} patterns", "fit", "scores"]
    return table(["covariances", *headings], rows)


def novelty() -> str:
    """Return the shares of new rows that are refused, beside those asked for."""
    rows = []
    for name, file in (
        ("`SharedKernelClassifier`", "novelty.json"),
        ("`SharedKernelClassifierCV`", "novelty_search.json"),
    ):
        by_share: dict[float, dict[str, float]] = {}
        for row in read(file):
            by_share.setdefault(row["nominal"], {})[row["data"]] = row["refused"]
        for share, refused in by_share.items():
            low, high = (choose(refused, key=refused.get) for choose in (min, max))
            close = sum(2 / 3 <= each / share <= 1.5 for each in refused.values())
            rows.append(
                [
                    name,
                    f"{100 * share:.0f} %",
                    f"{100 * median(refused.values()):.1f} %",
                    f"{100 * refused[low]:.1f} % ({low})",
                    f"{100 * refused[high]:.1f} % ({high})",
                    f"{close} of {len(refused)}",
                ]
            )
    headings = ["classifier", "asked for", "refused, median", "least", "most"]
    return table([*headings, "sets within a factor of 1.5"], rows)


def novelty_categories() -> str:
    """Return the shares of new and of planted rows that are refused in tables with rare values."""
    shares = ("refused", "caught", "plain_refused", "plain_caught")
    rows = [
        [f"{row['what']} ({thousands(row['rows'])} rows)"]
        + [
            f"{100 * row[name]:.{0 if name.endswith('caught') else 1}f} %"
            for name in shares
        ]
        for row in read("novelty_categories.json")
    ]
    headings = [
        "table",
        "refused",
        "planted refused",
        "by plain densities",
        "planted, by plain densities",
    ]
    return table(headings, rows)


def reading_tables() -> str:
    """Return how long reading a table takes beside pandas and pyarrow, in a sentence."""
    said = [
        f"{thousands(row['rows'])} rows of {thousands(row['columns'])} columns take "
        f"{row['ratios']['cpu_s_by_pandas']:.1f} times the processor time of pandas and "
        f"{row['ratios']['cpu_s_by_pyarrow']:.1f} times that of pyarrow"
        for row in read("tables.json")
    ]
    return "; ".join(said) + "."


def compared(*names: str) -> str:
    """Return tables of the comparison by name."""
    from comparison import make_tables

    tables = {found.name: found for found in make_tables(outcomes("accuracy.jsonl"))}
    # The title is a heading of the third level, as its place in the page wants it.
    return "\n\n".join(tables[name].markdown() for name in names)


def mnist() -> str:
    """Return errors, sizes and times on MNIST."""
    found = read("mnist.json")
    rows = []
    for name, own in found["outcomes"].items():
        recipe, seconds = (
            own[0]["recipe"],
            [sum(each["seconds"].values()) for each in own],
        )
        averaged = f", average of {recipe['members']}" if recipe["members"] > 1 else ""
        rows.append(
            [
                f"{name}: {recipe['components']} components, {recipe['kernels']} a digit{averaged}",
                " ".join(f"{100 * each['error']:.2f}" for each in own),
                percent(own, "error"),
                f"{percent(own, 'error_before')} → {percent(own, 'error_after')}",
                f"{sum(each['log_loss'] for each in own) / len(own):.3f}",
                thousands(own[0]["parameters"]),
                thousands(own[0]["parameters_of_components"]),
                f"{sum(seconds) / len(seconds):.0f} s",
            ]
        )
    for place in (2, 4):
        best = bold_best([row[place] for row in rows], range(len(rows)))
        for row, cell in zip(rows, best, strict=True):
            row[place] = cell
    headings = [
        "model", "errors, %", "mean", "held out, %", "log-loss", "parameters", "of the components", "training"
    ]  # fmt: skip
    return table(headings, rows)


def densities() -> str:
    """Return log-densities of held-out rows by the search and by scikit-learn's mixture chosen by BIC."""
    found = read("densities.json")
    parts = []
    for half in dict.fromkeys(row["half"] for row in found):
        own = [row for row in found if row["half"] == half]
        rows = [
            bold_best(
                [
                    row["data"],
                    *(f"{row[name]}" for name in ("rows", "features")),
                    *(f"{row[name]:.2f}" for name in ("sklearn", "skmix")),
                    f"{row['gain']:+.2f} ± {row['error']:.2f}",
                    f"{row['skmix_seconds'] / row['sklearn_seconds']:.1f}×",
                ],
                (3, 4),
                max,
            )
            for row in own
        ]
        headings = [
            f"{half} half",
            "rows",
            "features",
            "scikit-learn",
            "skmix",
            "gain",
            "time",
        ]
        gains = [row["gain"] for row in own]
        level = sum(row["gain"] > -max(row["error"], 0.02) for row in own)
        parts += [
            table(headings, rows),
            f"Mean gain {mean(gains):.2f}, median {median(gains):.2f}; better or "
            f"level (within a standard error, or 0.02) on {level} of {len(own)} sets.",
        ]
    splits = found[0]["splits"]
    parts.append(
        f"Gains are means over {splits} splits, with standard errors; time is the search's processor time in "
        "units of that of scikit-learn's 40 fits."
    )
    return "\n\n".join(parts)


def spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation of values over seeds."""
    return f"{mean(values):.3f} ± {stdev(values):.3f}"


def numbers_over_seeds(values: Sequence[int]) -> str:
    """Return the mean and the range of numbers of populations."""
    least, most = min(values), max(values)
    return f"{mean(values):.1f} ({least}–{most})" if least < most else f"{least}"


# What compose is compared with: the better of the two on average.
TOLD = ("FlowSOM, told k", "FlowSOM, told 2k")


def gated_cells() -> str:
    """Return mean F1 of methods on whole sets of gated cells."""
    found, rows = read("cells.json"), []
    for name, part in found["parts"].items():
        if "/" in name:
            continue
        own = part["methods"]
        means = bold_best(
            [spread(runs["f1"]) for runs in own.values()], range(len(own)), max
        )
        for (method, runs), f1 in zip(own.items(), means, strict=True):
            rows.append(
                [
                    name,
                    method,
                    f1,
                    f"{min(runs['f1']):.3f}–{max(runs['f1']):.3f}",
                    f"{mean(runs['ari']):.3f}",
                    numbers_over_seeds(runs["populations"]),
                    f"{mean(runs['seconds']):.2f} s",
                ]
            )
    headings = ["cells", "method", "mean F1", "range", "ARI", "populations", "time"]
    machine, versions = found["machine"], found["versions"]
    used = (
        f"flowsom {versions['flowsom']}, scikit-learn {versions['scikit-learn']}, "
        f"Python {machine['python']}; processor time on one thread."
    )
    return "\n\n".join([table(headings, rows), used, lost_to_flowsom(found["parts"])])


def gated_short() -> str:
    """Return time and mean F1 of FlowSOM and of compose on whole sets of gated cells."""
    rows, seconds = [], {"FlowSOM, told k": [], "compose": []}
    for name, part in read("cells.json")["parts"].items():
        own = part["methods"]
        if "/" in name or "compose" not in own:
            continue
        for method, known in seconds.items():
            known.append(mean(own[method]["seconds"]))
        f1 = {method: mean(runs["f1"]) for method, runs in own.items()}
        rows.append(
            [
                name,
                *(f"{best(f1[told] for told in TOLD):.2f}" for best in (max, min)),
                f"{f1['FlowSOM, left alone']:.2f}",
                f"{f1['compose']:.2f}",
            ]
        )
    flowsom, ours = (
        f"{min(known):.1f} to {max(known):.1f} s" for known in seconds.values()
    )
    headings = [
        "cells",
        "FlowSOM, told k or 2k, the better of the two",
        "the worse",
        "FlowSOM, left alone",
        "`compose`, not told",
    ]
    return f"{table(headings, rows)}\n\nFlowSOM took {flowsom} of one core, `compose` {ours}."


def lost_to_flowsom(parts: dict[str, Any]) -> str:
    """Return in a sentence where compose has a lower mean F1 than FlowSOM told k or 2 k."""
    level: list[tuple[str, float]] = []
    lost: list[tuple[str, float]] = []
    for name, part in parts.items():
        # With the digits of the table, so that no difference is one of rounding.
        own = {
            each: round(mean(runs["f1"]), 3) for each, runs in part["methods"].items()
        }
        if "compose" in own and TOLD[0] in own:
            gap = own["compose"] - max(own[each] for each in TOLD)
            (level if gap >= 0 else lost).append((name, gap))
    if not level and not lost:
        return "`compose` was not run."
    text = (
        f"Of {len(level) + len(lost)} parts, `compose` has at least the mean F1, to three digits, of FlowSOM "
        f"that was told k or 2k, whichever is better, on {len(level)}"
    )
    if not lost:
        return f"{text}."
    return (
        f"{text}; it loses on "
        + ", ".join(f"{name} ({gap:+.3f})" for name, gap in lost)
        + "."
    )


def gated_parts() -> str:
    """Return mean F1 of methods on random parts of the sets, and on the halves of choices and of judging."""
    names = {
        "FlowSOM, told k": "FlowSOM, k",
        "FlowSOM, told 2k": "FlowSOM, 2k",
        "FlowSOM, left alone": "FlowSOM, left alone",
        "k-means, told k": "k-means, k",
        "k-means, told 2k": "k-means, 2k",
        "mixture, 2k merged to k": "mixture, 2k merged to k",
        "compose": "compose",
    }
    rows = []
    for name, part in read("cells.json")["parts"].items():
        own = part["methods"]
        if "/" in name and TOLD[0] in own:
            cells = [spread(own[each]["f1"]) if each in own else "–" for each in names]
            populations = (
                numbers_over_seeds(own["compose"]["populations"])
                if "compose" in own
                else "–"
            )
            row = bold_best(
                [name.replace("/", ", "), *cells], range(1, len(cells) + 1), max
            )
            rows.append([*row, populations])
    return table(["cells", *names.values(), "its populations"], rows)


def gated_files() -> str:
    """Return how mean F1 and the number of populations depend on the files that cells come in."""
    parts, rows = read("cells.json")["parts"], []
    for name in parts:
        files = [
            parts.get(f"{name}{each}", {"methods": {}})["methods"]
            for each in ("", "/3 files", "/6 files")
        ]
        if "/" in name or any("compose" not in own for own in files):
            continue
        runs = [own["compose"] for own in files]
        three, six = (own["populations"] for own in runs[1:])
        same = sum(one == other for one, other in zip(three, six, strict=True))
        cells = [
            f"{spread(own['f1'])}, {numbers_over_seeds(own['populations'])}"
            for own in runs
        ]
        rows.append([name, *cells, f"{same} of {len(three)}"])
    if not rows:
        return "`compose` was not run."
    return table(
        ["cells", "their samples", "3 files", "6 files", "same number in 3 and 6"], rows
    )


def gated_options() -> str:
    """Return what shifts, hierarchical weights and t kernels do for gated cells."""
    held_out = {"half": "half of the samples", "batch": "a batch", "none": "cells"}
    columns = {
        "f1": "F1",
        "f1_new": "F1, held-out samples",
        "likelihood": "log-likelihood, held-out cells",
        "likelihood_new": "log-likelihood, held-out samples",
        "likelihood_100": "the same, 100 cells",
        "error_100": "error of proportions, 100 cells",
        "error_new": "error, all cells",
    }
    rows = []
    for case in read("cells_options.json"):
        of_case = [
            f"{case['cells']}, {case['kernels']} kernels",
            held_out[case["held_out"]],
        ]
        for name in case["runs"][0]:
            own = [run[name] for run in case["runs"]]
            if not any(key in own[0] for key in columns):
                continue
            cells = []
            for key in columns:
                if key not in own[0]:
                    cells.append("–")
                elif name in ("plain", "gated cells"):
                    text = f"{mean(run[key] for run in own):.3f}"
                    cells.append(text.replace("-", "−"))
                else:
                    cells.append(gain_over_plain(case["runs"], name, key))
            seconds = [run["seconds"] for run in own if "seconds" in run]
            taken = f"{median(seconds):.1f} s" if seconds else "–"
            rows.append([*of_case, name, *cells, taken])
    return table(["cells", "held out", "fit", *columns.values(), "time"], rows)


def many_cells() -> str:
    """Return time and memory of studies of many cells."""
    rows = []
    runs = read("cells_size.json")
    for run in sorted(
        runs, key=lambda run: run["sizes"]["files"] * run["sizes"]["cells"]
    ):
        sizes, study, new = run["sizes"], run["study"], run["new"]
        of = [
            thousands(sizes["files"] * sizes["cells"]),
            str(sizes["markers"]),
            str(sizes["files"]),
        ]
        where = f"{run['machine'].split()[-1]}, {run['cores']} cores"
        where += f", {run['device']}" if run["device"] else ""
        # The benchmark divides kibibytes by 1000.
        mebibytes = study["peak_mb"] * 1000 / 1024
        taken = f"{study['seconds']:.0f} s", thousands(mebibytes)
        rows.append(
            [
                *of,
                where,
                *taken,
                f"{new['seconds']:.1f} s ({new['without_imports']:.1f})",
            ]
        )
    headings = [
        "cells",
        "markers",
        "files",
        "on",
        "time",
        "memory, MiB",
        "a new sample (without imports)",
    ]
    return table(headings, rows)


def gain_over_plain(runs: Sequence[dict[str, Any]], name: str, key: str) -> str:
    """Return the mean difference of a fit from the plain one; bold if all seeds gain, with † if all lose."""
    differences = [run[name][key] - run["plain"][key] for run in runs]
    text = f"{mean(differences):+.3f}".replace("-", "−")
    if text[1:] == "0.000":
        return "0"
    signs = {(each > 0) - (each < 0) for each in differences}
    better = -1 if key.startswith("error") else 1
    if signs == {better}:
        return f"**{text}**"
    return f"{text}†" if signs == {-better} else text


def published_clusterings() -> str:
    """Return the published table of 19 methods on other cells."""
    path = RESULTS / "weber_robinson_2016.csv"
    lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    sets, rows = ("Levine_32dim", "Levine_13dim", "Samusik_01", "Samusik_all"), []
    for found in csv.DictReader(lines):
        cells = []
        for each in sets:
            seconds, _, marks = found[f"{each}_runtime_s"].partition(" ")
            marks = marks.replace("*", "†").replace("^", "‡")
            f1 = found[f"{each}_F1"]
            cells.append(
                f"{float(f1):.3f} ({thousands(float(seconds))} s{marks})" if f1 else "–"
            )
        rows.append([found["method"], *cells])
    return table(["method", *sets], rows)


def populations() -> str:
    """Return shares of misclassified rows by kernels, and by populations made of them."""
    names = {
        "bic": "BIC's kernels",
        "three": "three kernels",
        "merged": "merged",
        "given": "merged to 3",
    }
    rows = []
    for case in read("populations.json"):
        runs, cells = case["runs"], []
        for name in names:
            errors = [100 * run[name] for run in runs]
            cell = f"{sum(errors) / len(errors):.1f} ({max(errors):.1f})"
            if name == "merged":
                cell += f", {sum(run['merged_populations'] for run in runs) / len(runs):.1f}"
            cells.append(cell)
        kernels = sum(run["kernels"] for run in runs) / len(runs)
        setting = [f"{case[name]}" for name in ("features", "rows", "distance")]
        rows.append([*setting, f"{kernels:.1f}", *cells])
    headings = ["features", "rows", "distance", "kernels", *names.values()]
    return table(headings, rows, list(names.values()))


def alarms() -> str:
    """Return how many studies have a false alarm, and in how many an unusual group is found."""
    results, rows = read("alarms.json"), []
    for groups in sorted({case["groups"] for case in results["alarms"]}):
        for concentration in sorted(
            {case["concentration"] for case in results["alarms"]}
        ):
            own = [
                [
                    c
                    for c in results[name]
                    if (c["groups"], c["concentration"]) == (groups, concentration)
                ]
                for name in ("alarms", "found")
            ]
            studies = sum(case["studies"] for case in own[0])
            false = sum(case["share"] * case["studies"] for case in own[0]) / studies
            error = (max(false, 1.0 / studies) * (1.0 - false) / studies) ** 0.5
            found = [
                f"{100 * sum(case[kind]['share'] for case in own[1]) / len(own[1]):.0f}"
                if own[1]
                else "–"
                for kind in ("new", "tripled")
            ]
            cells = f"{100 * false:.1f} ± {100 * error:.1f}", str(studies)
            rows.append([str(groups), str(concentration), *cells, *found])
    return table(
        ["groups", "concentration", "alarms", "studies", "new found", "tripled found"],
        rows,
    )


def designs() -> str:
    """Return the error rates of comparisons in pairs, or with a covariate."""
    results = read("composition.json")["designs"]
    rows = []
    for layout in dict.fromkeys(case["layout"] for case in results):
        own = [case for case in results if case["layout"] == layout]

        def mean(key: str, name: str, own: Any = own, digits: int = 1) -> str:
            share = sum(case[key][name] for case in own) / len(own)
            return f"{100 * share:.{digits}f}"

        worst = f"{100 * max(case['worst']['compare'] for case in own):.1f}"
        rows.append(
            [
                layout,
                f"{mean('false', 'compare')}, {worst}",
                mean("false", "welch"),
                *(mean("found", name, digits=0) for name in ("compare", "welch")),
                f"{100 * sum(case['covered'] for case in own) / len(own):.0f}",
            ]
        )
    headings = ["samples", "false, worst", "false, Welch", "found", "found, Welch"]
    worst = {
        name: f"{100 * max(case['worst'][name] for case in results):.0f} %"
        for name in ("compare", "raw", "log-odds")
    }
    return "\n".join(
        [
            table([*headings, "covered"], rows),
            "",
            f"At most {worst['compare']} of the studies without a difference have p ≤ 0.05; by linear "
            f"models of the proportions up to {worst['raw']}, of their log-odds up to {worst['log-odds']}.",
        ]
    )


def coverage() -> str:
    """Return how many of the intervals of compositions cover."""
    rows = []
    kinds = {"weight_prior": "hierarchical weights", "group_shift": "shifts"}

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f}"

    for case in read("composition.json")["coverage"]:
        rows.append(
            [
                f"{case['gap']:g}",
                str(case["groups"]),
                ", ".join(map(str, case["sizes"])),
                ", ".join(kinds[name] for name in case["settings"]) or "–",
                percent(case["coverage"]),
                ", ".join(map(percent, case["by_size"].values())),
                percent(case["new"]),
                f"{100 * case['given']:.0f}",
            ]
        )
    return table(
        [
            "gap",
            "groups",
            "rows of a group",
            "with",
            "all",
            "by rows of a group",
            "new groups",
            "given",
        ],
        rows,
    )


def robust() -> str:
    """Return accuracy and errors of the parameters without and with outliers, by kind of kernels."""
    rows, names = [], ("accuracy", "means", "weights", "shapes")
    for case in read("robust.json")["outliers"]:
        for name in case["runs"][0]:
            means = [
                {
                    key: sum(run[name][kind][key] for run in case["runs"])
                    / len(case["runs"])
                    for key in names
                }
                for kind in ("clean", "outliers")
            ]
            accuracy = " → ".join(f"{100 * each['accuracy']:.1f}" for each in means)
            errors = [
                " → ".join(
                    f"{each[key]:,.3f}" if each[key] < 100 else f"{each[key]:,.0f}"
                    for each in means
                )
                for key in names[1:]
            ]
            density = name.replace("gaussian", "Gaussian")
            rows.append(
                [case["start"], f"{case['kernels']}", density, accuracy, *errors]
            )
    headings = [
        "start",
        "kernels",
        "density",
        "accuracy, %",
        "error of means",
        "of weights",
        "of shapes",
    ]
    return table(headings, rows)


def percent(outcomes: Sequence[dict[str, Any]], name: str) -> str:
    """Return the mean of a share over outcomes, in per cent."""
    return f"{100 * sum(each[name] for each in outcomes) / len(outcomes):.2f}"


def sharing() -> str:
    """Return error and log-loss of all classifiers against the rows of each class."""
    from comparison import in_study_order, sharing_tables

    tables = sharing_tables(in_study_order(outcomes("sharing.jsonl")))
    return "\n\n".join(found.markdown() for found in tables[:2])


def gain() -> str:
    """Return the gain from sharing, draw by draw."""
    from comparison import gain_table, in_study_order

    return gain_table(in_study_order(outcomes("sharing.jsonl"))).markdown()


def outcomes(name: str) -> list[Any]:
    """Return the outcomes of a comparison."""
    from comparison import Outcome
    from recording import read_lines

    return [Outcome.from_dict(record) for record in read_lines(RESULTS / name)]


def commands() -> str:
    """Return a section for each command of the command line, from the application itself."""
    import typer
    from typer.cli import get_docs_for_click

    from skmix.cli import app

    command = typer.main.get_command(app)
    with typer.Context(command, info_name="skmix") as context:
        return as_page(get_docs_for_click(obj=command, ctx=context, name="skmix"))


def as_page(text: str) -> str:
    """Return typer's Markdown as part of a page."""
    # The page has a title of its own, and lists of commands, cut short, stand above their sections.
    body = re.sub(
        r"^\*\*Commands\*\*:\n\n(?:\* .*\n)+\n",
        "",
        text.partition("\n")[2],
        flags=re.MULTILINE,
    )
    # Lines that are to stay as they are begin with spaces: examples, exit codes.
    body = re.sub(r"^(?:\x08\n)?((?: {2,}\S.*\n)+)", as_text, body, flags=re.MULTILINE)
    return body.replace("[required]", "(required)").replace(
        "```console\n$ ", "```text\n"
    )


def as_text(found: re.Match[str]) -> str:
    """Return indented lines as a block of text."""
    return "```text\n" + textwrap.dedent(found[1]) + "```\n"


PARTS: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "alarms": alarms,
    "answer": answer,
    "commands": commands,
    "cores": cores,
    "cost-of-a-pass": cost_of_a_pass,
    "default-classifier": default_classifier,
    "densities": densities,
    "designs": designs,
    "device": device,
    "coverage": coverage,
    "files": files,
    "fits": fits,
    "gaps": gaps,
    "gated-cells": gated_cells,
    "gated-files": gated_files,
    "gated-options": gated_options,
    "gated-parts": gated_parts,
    "gated-short": gated_short,
    "killed-worker": killed_worker,
    "many-cells": many_cells,
    "mnist": mnist,
    "novelty": novelty,
    "novelty-categories": novelty_categories,
    "other-libraries": other_libraries,
    "peers": peers,
    "populations": populations,
    "published-clusterings": published_clusterings,
    "ranks": ranks,
    "reading-tables": reading_tables,
    "robust": robust,
    "seconds": seconds,
    "sharing": sharing,
    "spark": spark,
    "spark-second": spark_second,
    "speed": speed,
    "standings": standings,
    "streaming": streaming,
    "study": study,
    "terabyte": terabyte,
    "gain": gain,
}


def fill(text: str) -> str:
    """Return a page with everything between its comments replaced; an unknown name is an error."""

    def written(found: re.Match[str]) -> str:
        name = found[1]
        if name not in PARTS:
            raise ValueError(f"no part is named {name}; there are {', '.join(PARTS)}.")
        # In a narrow cell the line may break between a value and its error, not between it and its unit.
        part = re.sub(
            r"(?<=±) | (?=(?:[mµ]?s|kB|MiB|GB/s)\*{0,2} \|)", "\u00a0", PARTS[name]()
        ).strip()
        return f"<!-- {name}:begin -->\n\n{part}\n\n<!-- {name}:end -->"

    return PLACE.sub(written, text)


def pages() -> list[Path]:
    """Return the pages that have such places."""
    own = sorted(
        path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts
    )
    own.append(ROOT / "README.md")
    return [path for path in own if PLACE.search(path.read_text(encoding="utf-8"))]


def main() -> None:
    """Write all pages, and name those that change."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (new := fill(text)) != text:
            path.write_text(new, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
