"""The code of the pages and the README runs and prints what they show, and their numbers were measured."""

from __future__ import annotations

import csv
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
def test_a_page_of_the_guide_shows_what_its_code_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no python block"
    # The table of contents promises these.
    assert {"## What to choose when", "## Pitfalls"} <= set(text.splitlines())
    assert [code for code, shown in blocks if not shown.strip()] == []


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
    assert 3_000 < len(README.encode()) < 6_700
    assert "](docs/images/sharing-real.png)" in README


def read(name: str) -> pd.DataFrame:
    """Return what a benchmark has written; dashes are missing numbers."""
    return pd.read_csv(RESULTS / f"{name}.csv", na_values="–")


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    sides = ["scikit-learn, s", "GaussianMixture, s", "SharedKernelMixture, s"]
    shown = re.findall(r"^\| (\S+ × \d+, .*?) \| (.*) \|$", README.replace("\u00a0", " "), re.MULTILINE)
    assert len(shown) == 6
    with (RESULTS / "drop_in.csv").open(encoding="utf-8", newline="") as file:
        kept = {row["problem"].replace("x", " × "): row for row in csv.DictReader(file)}
    for problem, cells in shown:
        assert cells.split(" | ") == [f"{kept[problem][side]} s" for side in sides], problem


def ranges(values: pd.Series) -> str:
    return f"{values.min():.1f} to {values.max():.1f}"


def test_claims_are_what_the_tables_show() -> None:
    passes, fits, fresh = read("passes"), read("answer"), read("drop_in")
    sizes = fresh["problem"].str.extract(r"^([\d,]+)")[0].str.replace(",", "").astype(int)
    drop_in, ours = (fresh[f"{name}, times faster"] for name in ("GaussianMixture", "SharedKernelMixture"))
    alone = fits["times faster"][fits["problem"].str.match(r"(1000x4|\d+ rows)")]
    small = pd.concat([alone, drop_in[sizes <= 1000], ours[sizes <= 1000]])
    few = passes[passes["rows"] == 1000]
    gpu = read("device").query("rows == 1000000 and features <= 32")
    files, gaps, intervals = read("files"), read("gaps"), read("intervals")
    by_patterns = gaps.groupby("patterns of gaps")["pass"]
    plain = intervals[intervals["with"].isna()]["covered, %"]
    memory, cells = read("memory").set_index("fit")["memory, MiB"], read("cells")
    for name, said in (
        ("README", f"the drop-in is [{ranges(drop_in[sizes >= 10_000])} times as fast]"),
        ("README", f"is {ranges(ours[sizes >= 10_000])} times as fast, and on"),
        ("README", f"On 200 to 1000 rows fits are {small.min():.2f} to {small.max():.1f} times as fast"),
        ("README", f"mlpack ({1 / few['mlpack'].min():.1f} times) and gmmx ({1 / few['gmmx'].min():.1f})"),
        ("README", f"in {ranges(plain)} % of simulated cases"),
        ("README", f"up to {(cells['compose, s'] / cells['FlowSOM, s']).max():.1f} times as long"),
        ("README", f"[{memory['GaussianMixture']} MiB]"),
        ("README", f"scikit-learn {memory.iloc[3]}."),
        ("paper", f"{ranges(plain)} %"),
        ("passes", f"is {ranges(passes[passes['rows'] >= 8000]['scikit-learn'])} times faster"),
        ("passes", f"is {ranges(read('cores')['times as fast'])} times faster"),
        ("gpu", f"takes {gpu['default fit, s'].min():.2f} to {gpu['default fit, s'].max():.2f} s"),
        ("memory", f"at least {files['speed from .npy, %'].min()} % of the speed"),
        ("memory", f"over Parquet at least {files['speed from Parquet, %'].min()} %."),
        ("densities", f"takes {ranges(read('densities')['time'])} times as long"),
        ("gaps", f"takes {ranges(by_patterns.get_group(gaps['patterns of gaps'].min()))} times as long"),
        ("gaps", f"and {ranges(by_patterns.get_group(gaps['patterns of gaps'].max()))} times"),
        ("answer", f"it is {alone.min():.2f} to {alone.max():.1f} times as fast"),
    ):
        page = {"README": ROOT / "README.md", "paper": ROOT / "paper" / "paper.md"}.get(name)
        text = (page or DOCS / "evidence" / f"{name}.md").read_text(encoding="utf-8")
        assert said in " ".join(text.split()), (name, said)


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
