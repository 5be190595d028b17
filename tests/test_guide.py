"""The code of the pages and the README runs and prints what they show, and their numbers were measured."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from comparison import Outcome, gain_table, half_of, in_study_order
from recording import read_lines
from typer.testing import CliRunner

from skmix.cli import app
from skmix.datasets import copy_examples

NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
WHOLE = re.compile(r"-?\d+")
FEWEST = 20
"""Whole numbers below are labels, shapes and small counts, which are the same on all machines."""


def compare(printed: str, shown: str) -> None:
    """Compare words and small whole numbers exactly, other numbers nearly, spaces not at all.

    A line of three dots stands for any lines.
    """
    lines = printed.splitlines(keepends=True)
    head, *tail = re.split(r"^\.\.\.\n", shown, maxsplit=1, flags=re.MULTILINE)
    if tail:
        lines = [*lines[: head.count("\n")], *lines[len(lines) - tail[0].count("\n") :]]
    found, expected = "".join(lines), head + "".join(tail)
    assert words(found) == words(expected), f"this was printed:\n{printed}"
    for now, then in zip(NUMBER.findall(found), NUMBER.finditer(expected), strict=True):
        percentage = re.match(r"\s*%", expected[then.end() :]) is not None
        assert float(now) == near(then[0], percentage), f"{now}, not {then[0]}; this was printed:\n{printed}"


def near(number: str, percentage: bool) -> Any:
    """Return what a number may be on other machines, which round otherwise."""
    value = float(number)
    whole = WHOLE.fullmatch(number) is not None
    if whole and abs(value) < FEWEST and not percentage:
        return value
    return pytest.approx(value, rel=0.05, abs=2 if whole else 0.02)


def words(text: str) -> str:
    """Return a text without spaces, its numbers replaced."""
    return re.sub(r"\s", "", NUMBER.sub("#", text))


# In the wells of the example data no sample has both red populations.
pytestmark = pytest.mark.filterwarnings("ignore:Some populations may be one")

# ---------------------------------------------------------------- pages

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
OPTIONAL = {"dask", "distributed", "flowio", "onnx", "onnxruntime", "pyarrow", "torch"}
# Every page of the guide shows code and a picture, its table of contents apart.
GUIDE = [page for page in sorted((DOCS / "guide").glob("*.md")) if page.stem != "index"]
# In the design a block shows the shape of the code; it names things that are not there.
ELSEWHERE = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.parent.name not in ("guide", "_build")
    and page.name != "design.md"
    and BLOCK.search(page.read_text(encoding="utf-8"))
]


def test_small_whole_numbers_are_compared_exactly() -> None:
    """Those of labels and shapes; larger and broken ones may differ a little on other machines."""
    for printed, shown in (("148 of 150", "150 of 150"), ("8 %, 9%", "9 %, 11%"), ("0.98", "0.97")):
        compare(printed, shown)
    for printed, shown in (("[0 1 0]", "[2 2 2]"), ("k0", "k1"), ("8 %", "11 %"), ("0.98", "0.90")):
        with pytest.raises(AssertionError):
            compare(printed, shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*GUIDE, *ELSEWHERE], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_code_of_a_page_runs_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # pages may write files, and read those of docs/data
    (copy_examples("plate") / "mixed").symlink_to(DOCS / "data" / "plate" / "mixed")
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for found in BLOCK.finditer(text):
        code, shown = found.groups(default="")
        # Lines are counted as in the page, so that a traceback points into it.
        lines_above = text[: found.start(1)].count("\n")
        try:
            exec(compile("\n" * lines_above + code, str(page), "exec"), namespace)
        except ImportError as error:
            missing = getattr(error.__cause__ or error, "name", None)
            if missing not in OPTIONAL:
                raise
            pytest.skip(f"{missing} is not installed")
        printed = capsys.readouterr().out
        if shown or page in GUIDE:
            compare(printed, shown)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_shows_a_picture_and_what_its_code_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"!\[[^\]]+\]\([^)]+\.png\)", text)
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no python block"
    # The table of contents promises these.
    assert {"## What to choose when", "## Pitfalls"} <= set(text.splitlines())
    assert [code for code, shown in blocks if not shown.strip()] == []
    prose = re.sub(r"^```.*?^```\n", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 900, "measurements belong to docs/evidence"


# ---------------------------------------------------------------- the README

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
# As it is read: links without their targets, lines joined.
PROSE = re.sub(r"\s+", " ", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", README))


def blocks(language: str, text: str = README) -> list[str]:
    """Return the blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(arguments: str) -> str:
    """Return what a command prints."""
    result = CliRunner().invoke(app, shlex.split(arguments, comments=True))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_the_doors_of_the_readme_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make dist` runs the same in an environment that has what the README installs."""
    monkeypatch.chdir(tmp_path)
    doors = BLOCK.findall(README)
    assert len(doors) == 3
    for code, shown in doors:
        exec(compile(code, "README.md", "exec"), {})
        compare(capsys.readouterr().out, shown)
    lines = "".join(blocks("bash")).splitlines()
    commands = [line.removeprefix("skmix ") for line in lines if line.startswith("skmix ")]
    assert [each.split()[0] for each in commands] == ["examples", "fit", "predict", "compose", "reproduce"]
    for arguments in commands:
        run(arguments)
    assert len(Path("predictions.csv").read_text().splitlines()) == 345
    assert Path("study.html").is_file()
    assert Path("look", "report.html").is_file()


def test_the_commands_run_and_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("console", (DOCS / "command-line.md").read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    steps = re.findall(r"^\$ skmix (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert {arguments.split()[0] for arguments, _ in steps} >= {"examples", "fit", "predict"}
    for arguments, shown in steps:
        compare(run(arguments), shown)
    assert len(Path("predictions.csv").read_text().splitlines()) == 345


def test_it_is_short_and_has_a_picture() -> None:
    assert 3_000 < len(README.encode()) < 6_200
    assert "](docs/images/illustration.png)" in README


def read(name: str) -> Any:
    """Return what a benchmark has written."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_speed_memory_and_coverage_are_those_of_the_results() -> None:
    fits = [each for each in read("answer.json")["problems"] if "scikit-learn" in each]
    fresh = read("drop_in.json")["problems"]
    assert all(each["more_seeds"]["difference"] > 0.0 for each in fits if each["n_rows"] >= 10_000)
    ratios = {
        side: [(each["n_rows"], each["scikit-learn"]["wall"] / each[side]["wall"]) for each in fresh]
        for side in ("drop-in", "skmix")
    }
    for side, words in (
        ("drop-in", "{} to {} times as fast as"),
        ("skmix", "{} to {} times as fast, and on"),
    ):
        gains = [ratio for n_rows, ratio in ratios[side] if n_rows >= 10_000]
        assert words.format(f"{min(gains):.1f}", f"{max(gains):.1f}") in PROSE
    alone = [each["scikit-learn"]["wall"] / each["skmix"]["wall"] for each in fits if each["n_rows"] <= 1000]
    small = [*alone, *(ratio for own in ratios.values() for n_rows, ratio in own if n_rows <= 1000)]
    assert f"On 200 to 1000 rows fits are {min(small):.2f} to {max(small):.1f} times as fast" in PROSE
    memory = read("speed.json")["memory_mb"]
    assert (
        f"needs {memory['drop-in']:.0f} MiB beyond the data, scikit-learn {memory['sklearn']:.0f}." in PROSE
    )
    peers = [row["ratios"] for row in read("peers.json")["cases"] if row["rows"] == 1000]
    slower = {name: f"{1 / min(ratios[name]['one'] for ratios in peers):.1f}" for name in peers[0]}
    assert f"mlpack ({slower['mlpack']} times) and gmmx ({slower['gmmx']})" in PROSE
    plain = [each for each in read("composition.json")["coverage"] if not each["settings"]]
    low, high = (f"{100 * most(each['coverage'] for each in plain):.1f}" for most in (min, max))
    assert f"{low} to {high} % of simulated cases" in PROSE
    wholes = [part["methods"] for name, part in read("cells.json")["parts"].items() if "/" not in name]
    seconds = [[sum(own[name]["seconds"]) for name in ("compose", "FlowSOM, told k")] for own in wholes]
    assert f"up to {max(a / b for a, b in seconds):.1f} times as long as FlowSOM" in PROSE


def test_claims_of_the_evidence_are_what_their_tables_show() -> None:
    def ranges(values: list[float]) -> str:
        return f"{min(values):.1f} to {max(values):.1f}"

    passes = [row["ratio_1"] for rows in read("speed.json")["fits"].values() for row in rows]
    threads = [row["ms"]["1"] / row["ms"]["16"] for row in read("cores.json")["cases"]]
    runs = [
        row[method] / row["published"]
        for row in read("study.json")["one_process"]
        for method in ("robust", "class-wise")
    ]
    clusters = [
        each["spark"]["processor"] / each["dask"]["processor"]
        for each in map(read, ("spark.json", "spark_second.json"))
    ]
    gaps = {name: [row for row in read("missing.json") if row["gaps"] == name] for name in ("few", "many")}
    few, many = (ranges([row["pass_ratio"] for row in own]) for own in gaps.values())
    fits = [each for each in read("answer.json")["problems"] if each["n_rows"] <= 1000]
    alone = [each["scikit-learn"]["wall"] / each["skmix"]["wall"] for each in fits]
    fresh = [each for each in read("drop_in.json")["problems"] if each["n_rows"] <= 1000]
    gpu = [row for row in read("device.json")["fits"] if row["rows"] == 1_000_000 and row["features"] <= 32]
    seconds = [row["default_fit_s"] for row in gpu]
    files = [row["speed_of_memory"] for row in read("out_of_core.json")["speed"]]
    slowest = {name: f"{100 * min(row[name] for row in files):.0f} %" for name in ("npy", "parquet")}
    longer = [row["skmix_seconds"] / row["sklearn_seconds"] for row in read("densities.json")]
    for page, said in (
        ("gpu", f"takes {min(seconds):.2f} to {max(seconds):.2f} s"),
        ("memory", f"at least {slowest['npy']} of the speed"),
        ("memory", f"over Parquet at least {slowest['parquet']}."),
        ("densities", f"takes {ranges(longer)} times as long"),
        ("passes", f"is {ranges(passes)} times faster"),
        ("cores", f"is {ranges(threads)} times faster"),
        ("study", f"make {ranges(runs)} times as many runs"),
        ("cluster", f"takes Spark ML {ranges(clusters)} times as long"),
        ("gaps", f"takes {few} times as long as over complete rows, and {many} times"),
        ("answer", f"it is {min(alone):.2f} to {max(alone):.1f} times as fast"),
        (
            "answer",
            f"{ranges([row['scikit-learn']['wall'] / row['skmix']['wall'] for row in fresh])} times in",
        ),
    ):
        text = (DOCS / "evidence" / f"{page}.md").read_text(encoding="utf-8")
        assert said in " ".join(text.split()), page


def test_ranks_and_errors_are_those_of_the_results() -> None:
    outcomes = pd.DataFrame(read_lines(RESULTS / "accuracy.jsonl"))
    judging = outcomes[outcomes["data"].map(half_of) == "judging"]
    said = []
    for measure in ("error", "log_loss"):
        means = judging.pivot_table(index="data", columns="classifier", values=measure)
        ranks = means.rank(axis=1).mean()
        said += [ranks["shared kernels"], min(ranks[name] for name in ranks.index if "shared" not in name)]
    words = (
        "has a mean rank of {:.1f} by error among {} classifiers (next best: {:.1f}) and {:.1f} by log-loss "
        "({:.1f}), on {} data sets not used to choose its settings"
    )
    own, other, *log_losses = said
    assert words.format(own, means.shape[1], other, *log_losses, means.shape[0]) in PROSE
    seconds = outcomes.pivot_table(index="data", columns="classifier", values="fit_seconds")
    ratios = seconds["shared kernels"] / seconds["RBF SVM"]
    n_train = outcomes.groupby("data")["n_train"].first()
    large, small = (ratios[own].max() for own in (n_train.between(2900, 3100), n_train < 1000))
    assert f"up to {large:.1f} times as long as tuning an SVM on 3000 rows, up to {small:.1f} times" in PROSE
    errors = 100 * outcomes[outcomes["data"] == "segment"].groupby("classifier")["error"].mean()
    assert f"({errors['shared kernels']:.1f} % errors, boosting {errors['gradient boosting']:.1f} %)" in PROSE


@pytest.mark.parametrize(
    "name", ["README.md", "paper/paper.md", "docs/guide/shared-kernels.md", "docs/evidence/sharing.md"]
)
def test_the_gain_from_sharing_is_that_of_the_table(name: str) -> None:
    gains: dict[tuple[str, str], list[float]] = {}
    outcomes = map(Outcome.from_dict, read_lines(RESULTS / "sharing.jsonl"))
    for data, rows, of, _, points, *_ in gain_table(in_study_order(list(outcomes))).lines:
        if int(rows) >= 5:
            gains.setdefault((data, of), []).append(float(points.split(" ± ")[0]))
    parts, pool = gains["parts-100", "shared kernels by parts"], gains["pool-100", "shared kernels"]
    costs = [-min(gains[data, "shared kernels"]) for data in ("seven_segment", "letter", "apart-100")]
    said = (
        "rom five rows per class on, sharing gains {} to {} points of error where a hundred classes combine "
        "known parts and are learnt by parts, and {} to {} where they use one pool. It costs up to {} points "
        "on digits, {} on letters and {} where classes lie apart."
    )
    numbers = (min(parts), max(parts), min(pool), max(pool), *costs)
    assert said.format(*numbers) in " ".join((ROOT / name).read_text(encoding="utf-8").split())
