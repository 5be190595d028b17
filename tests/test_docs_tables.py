"""Tables of the pages are what was measured, and what the command line has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scripts import load_script
from typer.testing import CliRunner

from skmix.cli import app

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return load_script("docs/write_tables.py")


def cells(table: str) -> list[list[str]]:
    """Return the cells of the first table in a text, its headings first."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def test_pages_have_the_tables_of_the_results(tables: ModuleType) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in tables.pages()}
    assert {page.name for page in pages} >= {
        f"{name}.md" for name in ("benchmarks", "command-line", "comparison", "mnist", "sharing")
    }
    shown = [found[1] for text in pages.values() for found in tables.PLACE.finditer(text)]
    assert sorted(shown) == sorted(tables.PARTS)
    old = [page.name for page, text in pages.items() if tables.fill(text) != text]
    assert old == [], "make tables writes them"


def test_only_what_is_between_the_comments_is_replaced(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tables.PARTS, "study", lambda: "| 1 ± 2 |\n")
    text = "one\n\n<!-- study:begin -->{}<!-- study:end -->\n\ntwo\n"
    for old in ("\n", "\n\nold\n\nolder\n\n"):
        assert tables.fill(text.format(old)) == text.format("\n\n| 1 ±\u00a02 |\n\n")
    with pytest.raises(ValueError, match="no part is named sped; there are accuracy"):
        tables.fill("<!-- sped:begin -->\n<!-- sped:end -->\n")


def test_times_are_those_of_the_results(tables: ModuleType) -> None:
    study = json.loads((RESULTS / "study.json").read_text())["one_process"]
    shown = cells(tables.study())
    assert [row[0] for row in shown[1:]] == [row["variant"] for row in study]
    column = shown[0].index("robust")
    assert [float(row[column]) for row in shown[1:]] == pytest.approx(
        [row["robust"] for row in study], abs=0.5
    )

    device = json.loads((RESULTS / "device.json").read_text())
    passes = [row for row in device["passes"] if row["clusters"] == "of unit variance"]
    shown = cells(tables.device())
    for precision in ("float64", "tf32"):
        times = [float(row[shown[0].index(precision)].removesuffix(" ms")) for row in shown[1:]]
        measured = [row["median_ms"] for row in passes if row["precision"] == precision]
        assert times == pytest.approx(measured, abs=0.05, rel=0)
    assert device["device"] in tables.device()
    shown = cells(tables.fits())
    apart = [row["pass_ms"] for row in device["fits"] if row["clusters"] == "apart"]
    assert [float(row[2].removesuffix(" ms")) for row in shown[1:]] == pytest.approx(apart, abs=0.05, rel=0)
    sizes = json.loads((RESULTS / "device_features.json").read_text())["streaming"].values()
    shown = cells(tables.streaming())
    assert [row[2] for row in shown[1:]] == [f"{own['array']['ms']:.0f} ms" for own in sizes]
    several = json.loads((RESULTS / "cores.json").read_text())["cases"]
    shown = cells(tables.cores())
    assert [row[1] for row in shown[1:]] == [f"{row['ms']['1']:.1f} ms" for row in several]

    out_of_core = json.loads((RESULTS / "out_of_core.json").read_text())
    shown = cells(tables.files())
    assert [row[2] for row in shown[1:]] == [
        f"{row['speed_of_memory']['npy']:.0%}" for row in out_of_core["speed"]
    ]
    assert f"{out_of_core['memory']['peak_mb']:.0f} MB" in tables.files()
    peers = json.loads((RESULTS / "peers.json").read_text())
    shown = cells(tables.other_libraries())
    assert len(shown) == 1 + len(peers["cases"])
    assert shown[1][1] == f"{peers['cases'][0]['ms']['skmix']['one']:.1f} ms"
    for name, version in peers["versions"].items():
        assert version is None or f"{name} {version}" in tables.other_libraries() or name == "skmix"
    cluster = json.loads((RESULTS / "cluster.json").read_text())
    assert f"{cluster['passes'][0]['seconds']:.2f} s" in tables.cluster()


def test_errors_are_means_of_the_outcomes(tables: ModuleType) -> None:
    lines = [json.loads(line) for line in (RESULTS / "accuracy.jsonl").read_text().splitlines()]
    errors = [r["error"] for r in lines if (r["data"], r["classifier"]) == ("iris", "LDA")]
    shown = cells(tables.accuracy())
    row = next(row for row in shown if row[0] == "iris")
    assert float(row[shown[0].index("LDA")].split(" ± ")[0]) == pytest.approx(
        100 * sum(errors) / len(errors), abs=0.05
    )


def test_gain_is_what_own_kernels_lose_in_the_same_draw(tables: ModuleType) -> None:
    lines = [json.loads(line) for line in (RESULTS / "sharing.jsonl").read_text().splitlines()]
    own = [r for r in lines if r["data"] == "pool-100" and r["n_train"] == 100 * 100]
    errors = {(r["classifier"], r["repeat"]): r["error"] for r in own if not r.get("failure")}
    gains = [
        100 * (error - errors["shared kernels", repeat])
        for (name, repeat), error in errors.items()
        if name == "own kernels" and ("shared kernels", repeat) in errors
    ]
    shown = cells(tables.gain())
    row = next(row for row in shown if row[:3] == ["pool-100", "100", "shared kernels"])
    found = row[shown[0].index("error, points")].split(" ± ")[0]
    assert float(found) == pytest.approx(sum(gains) / len(gains), abs=0.05001)

    shown = cells(tables.sharing())
    row = next(row for row in shown if row[:2] == ["pool-100", "100"])
    truth = [error for (name, _), error in errors.items() if name == "true densities"]
    assert float(row[shown[0].index("true densities")].split(" ± ")[0]) == pytest.approx(
        100 * sum(truth) / len(truth), abs=0.05001
    )


def test_every_command_and_option_is_on_the_page(tables: ModuleType) -> None:
    text = tables.commands()
    # Follow --help, which is what users see, instead of the objects that the page is made from.
    pending, seen = [[]], []
    while pending:
        words = pending.pop()
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
        assert not words or f"`skmix {' '.join(words)}`" in text, words
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown):
            assert f"{option}" in text, (words, option)
        _, _, listed = shown.partition("Commands")
        names = re.findall(r"^[│ ]+([a-z][a-z-]+)  ", listed, re.MULTILINE)
        pending += [[*words, name] for name in names]
        seen.append(words)
    assert len(seen) > 4
    assert "**Commands**" not in text


def test_examples_of_help_texts_keep_their_lines(tables: ModuleType) -> None:
    head = "# `skmix`\n\nHelp.\n\n**Commands**:\n\n* `fit`: Fit a...\n\n"
    text = head + "## `skmix fit`\n\nExamples:\n\n\b\n  one\n    two\n\nEnd.\n"
    assert tables.as_page(text) == (
        "\nHelp.\n\n## `skmix fit`\n\nExamples:\n\n```text\none\n  two\n```\n\nEnd.\n"
    )


def test_gains_in_density_are_those_of_the_results(tables: ModuleType) -> None:
    measured = {row["data"]: row for row in json.loads((RESULTS / "densities.json").read_text())}
    text = tables.densities()
    shown = [row for row in cells(text) if row[0] in measured]
    assert len(shown) == len(measured) == 21
    for row in shown:
        assert float(row[5].split(" ± ")[0]) == pytest.approx(measured[row[0]]["gain"], abs=0.005)
    gains = [row["gain"] for row in measured.values() if row["half"] == "judging"]
    assert f"Mean gain {sum(gains) / len(gains):+.2f}" in text


def test_errors_with_outliers_are_those_of_the_results(tables: ModuleType) -> None:
    measured = json.loads((RESULTS / "robust.json").read_text())
    shown = cells(tables.robust())[1:]
    for case in measured["outliers"]:
        for name in case["runs"][0]:
            row = next(row for row in shown if row[0] == case["start"] and row[2].lower() == name)
            clean, far = (
                {
                    key: np.mean([run[name][kind][key] for run in case["runs"]])
                    for key in case["runs"][0][name][kind]
                }
                for kind in ("clean", "outliers")
            )
            assert row[3] == f"{100 * clean['accuracy']:.1f} → {100 * far['accuracy']:.1f}"
            assert row[4] == f"{clean['means']:.3f} → {far['means']:.3f}"
            if "background" in name:
                # Outliers cost less than 1 % of accuracy and 5 % of any error.
                assert far["accuracy"] > clean["accuracy"] - 0.01
                assert all(far[key] < 1.05 * clean[key] for key in ("means", "weights", "shapes"))
            elif name == "t" and case["start"] == "near":
                assert far["accuracy"] > clean["accuracy"] - 0.01
                assert far["means"] < 1.05 * clean["means"]
            elif name == "gaussian":
                assert far["means"] > 10.0 * clean["means"]
    seconds = measured["seconds_of_a_pass"]
    assert max(seconds.values()) < 1.5 * seconds["gaussian"]


def test_errors_of_populations_are_those_of_the_results(tables: ModuleType) -> None:
    measured = json.loads((RESULTS / "populations.json").read_text())["merging"]
    shown = cells(tables.populations())
    assert shown[0][4:] == [
        "BIC's kernels", "three kernels", "entropy", "overlap", "elbow", "three by entropy"
    ]  # fmt: skip
    assert len(shown) == len(measured) + 1
    for row, case in zip(shown[1:], measured, strict=True):
        assert row[:3] == [str(case[name]) for name in ("features", "rows", "distance")]
        errors = [100 * run["entropy"] for run in case["runs"]]
        populations = [run["entropy_populations"] for run in case["runs"]]
        assert row[6] == f"{np.mean(errors):.1f} ({np.max(errors):.1f}), {np.mean(populations):.1f}"
        # What merging is for: tens of per cent become at most seven, in every data set.
        assert float(row[4].split()[0]) > 20.0
        assert max(run[name] for run in case["runs"] for name in ("entropy", "overlap")) <= 0.07


def test_numbers_of_kernels_are_those_of_the_results(tables: ModuleType) -> None:
    measured = json.loads((RESULTS / "populations.json").read_text())["numbers"]
    shown = cells(tables.numbers())
    assert len(shown) == len(measured) + 1
    for row, case in zip(shown[1:], measured, strict=True):
        chosen = [run["stability"] for run in case["runs"]]
        counts = dict(map(int, part.split(": ")) for part in row[3].split(", "))
        assert counts == {number: chosen.count(number) for number in chosen}
        # What the rule is for: at least nine of ten numbers are right.
        assert case["kernels"] is None or counts[case["kernels"]] >= 0.9 * len(chosen)


def test_errors_on_mnist_are_those_of_the_results(tables: ModuleType) -> None:
    measured = json.loads((RESULTS / "mnist.json").read_text())["outcomes"]
    shown = {row[0].partition(":")[0]: row for row in cells(tables.mnist())[1:]}
    assert shown.keys() - {"---"} == measured.keys()
    for name, outcomes in measured.items():
        mean = 100 * sum(each["error"] for each in outcomes) / len(outcomes)
        assert float(shown[name][2]) == pytest.approx(mean, abs=0.005)
