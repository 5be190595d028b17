"""The benchmarks run at a small size. Their times are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def test_speed_benchmark_writes_numbers_and_the_table(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- speed:begin -->\nold\n<!-- speed:end -->\nafter\n")
    out = tmp_path / "speed.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "speed.py"), "--small", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--out", str(out), "--readme", str(readme)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    for rows in results["fits"].values():
        assert len(rows) == 8
        for row in rows:
            # The benchmark is void unless both sides made the same fit.
            assert row["log_likelihood_difference"] < 1e-8
            assert row["ratio_1"] == pytest.approx(row["sklearn_1_ms"] / row["skmix_1_ms"])
    assert {row["features"] for row in results["starts"]} == {3, 6, 13}
    assert set(results["memory_mb"]) == {"sklearn", "drop-in", "mixture", "labelled"}
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert text.count("clusters apart |") == text.count("clusters overlapping |") == 8
    assert set(results["compilation"]) == {"compile_s", "load_s"}


def test_core_benchmark_times_every_structure_with_each_number_of_threads(tmp_path: Path) -> None:
    out = tmp_path / "cores.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "cores.py"), "--small", "--repeats", "1"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = json.loads(out.read_text())["cases"]
    assert {case["covariances"] for case in cases} == {"full", "tied", "diag", "spherical", "low_rank"}
    assert all("1" in case["ms"] for case in cases)


def test_study_benchmark_counts_runs_of_every_method(tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "study.py"), "--small", "--whole", "--jobs", "1"]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert len(results["one_process"]) == 10
    for method in ("published", "robust", "class-wise"):
        assert all(row[method] > 0 for row in results["one_process"])
        assert f"{method}: 5000 runs at K = 10 take about" in done.stdout
    # One run of ten variants, and of four at six more values of K.
    assert [row["runs"] for row in results["whole"]] == [34, 34, 34]


def test_the_benchmark_of_acceleration_runs() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "acceleration.py"), "--small"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "accelerated" in done.stdout


def test_the_benchmark_of_few_rows_runs(tmp_path: Path) -> None:
    out = tmp_path / "few_rows.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "few_rows.py"), "--small", "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "full covariances" in done.stdout
    found = [row for row in json.loads(out.read_text()) if row["ratio"] < 3.0]
    assert {row["covariance_type"] for row in found} == {"full", "low_rank"}
    # What the default rests on.
    assert all(row["density_shrunk"] > row["density"] for row in found)


def test_the_benchmark_of_high_dimension_runs(tmp_path: Path) -> None:
    out = tmp_path / "high_dimension.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "high_dimension.py"), "--small", "--jobs", "1"]
    done = subprocess.run([*command, "--out", str(out)], check=True, capture_output=True, text=True)
    assert "full (computed)" in done.stdout
    results = json.loads(out.read_text())
    assert results["fit"]["last"] > results["fit"]["first"]
    ours, theirs = (results["peers"][name]["log_density"] for name in ("skmix", "scikit-learn"))
    # The same model by two ways, both stopped a little early.
    assert ours == pytest.approx(theirs, abs=0.05)


def test_the_benchmark_of_files_runs(tmp_path: Path) -> None:
    out = tmp_path / "out_of_core.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "out_of_core.py"), "--gigabytes", "0.005"]
    command += ["--passes", "1", "--repeats", "1", "--share", "1", "--temporary", str(tmp_path)]
    done = subprocess.run([*command, "--out", str(out)], check=True, capture_output=True, text=True)
    assert "million rows a second from the file" in done.stdout
    memory, file = json.loads(out.read_text())["runs"]
    # The benchmark is void unless both sides made the same passes.
    assert memory["rows"] == file["rows"] == 39062
    assert memory["log_likelihood_per_row"] == pytest.approx(file["log_likelihood_per_row"], rel=1e-3)


def test_the_comparison_leaves_what_it_measured_and_pictures(tmp_path: Path) -> None:
    out = tmp_path / "accuracy.jsonl"
    kept = (ROOT / "benchmarks" / "results" / "accuracy.jsonl").read_text().splitlines()[0]
    out.write_text(kept + "\n")
    command = [sys.executable, str(ROOT / "benchmarks" / "accuracy.py"), "--small"]
    command += ["--out", str(out), "--images", str(tmp_path), "--store", str(tmp_path / "cells.sqlite")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "iris, LDA, 1: " in done.stdout
    outcomes = [json.loads(line) for line in out.read_text().splitlines()]
    # One outcome for each classifier, and nothing of what was there before.
    assert [(each["data"], each["classifier"]) for each in outcomes] == [
        ("iris", "shared kernels"),
        ("iris", "LDA"),
    ]
    assert {path.name for path in tmp_path.glob("*.png")} == {"ranks.png", "comparison.png"}
