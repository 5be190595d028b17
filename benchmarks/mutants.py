"""Tests that notice: one-line changes of what the code means, and the tests that must fail for each.

Each change is made alone, in a copy of the package; then the tests that are named beside it run against the
copy. A change that they pass is not noticed; one that they fail counts if they pass without it. A change
whose old text does not occur exactly once is an error, so that the list keeps up with the code.

    python benchmarks/mutants.py --list
    python benchmarks/mutants.py --only streams --jobs 2

The list is in mutants.toml: file, old and new text, what the change breaks, tests, and a library that they
need, if any. About two hours on one core. Processes are forks, so that libraries are imported once.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# Seconds after which tests are ended: a change may make a fit endless, and a machine may be slow.
_LONGEST = 600
# Imported before forks; nothing of the package itself.
_LIBRARIES = (
    *("numba", "numpy", "pandas", "pyarrow.csv", "pyarrow.parquet", "pytest", "rich.console"),
    *("scipy.optimize", "scipy.special", "scipy.stats", "sklearn.ensemble", "sklearn.mixture"),
    *("sklearn.model_selection", "sklearn.neural_network", "sklearn.svm", "threadpoolctl", "typer"),
)
# By the exit status of pytest. Another one means that tests did not run.
_OUTCOMES = {0: "NOT NOTICED", 1: "noticed"}
_BROKEN = 70


@dataclass(frozen=True)
class Change:
    """A change of one line of a file of the package."""

    file: str  # below src/skmix
    old: str
    new: str
    breaks: str  # what it does
    tests: list[str]  # files or node ids below tests
    needs: str = ""  # a library that the tests need

    @property
    def name(self) -> str:
        """Name of the change in output and options."""
        return f"{self.file}: {self.breaks}"

    def changed(self, text: str) -> str:
        """Return the text of the file with the change."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.old!r} occurs {count} times in {self.file}.")
        if self.old == self.new:
            raise ValueError(f"nothing changes in {self.file}.")
        return text.replace(self.old, self.new)


def changes(only: str = "") -> list[Change]:
    """Return the changes whose name has a text in it."""
    with open(Path(__file__).with_suffix(".toml"), "rb") as file:
        every = [Change(**values) for values in tomllib.load(file)["change"]]
    return [change for change in every if only in change.name]


class Trial:
    """The tests of a change, running in a process of their own."""

    def __init__(self, change: Change, *, unchanged: bool = False) -> None:
        self.change, self.began, self._process = change, time.monotonic(), None
        if change.needs and importlib.util.find_spec(change.needs) is None:
            return
        self._folder = tempfile.TemporaryDirectory()
        source = Path(self._folder.name) / "src"
        shutil.copytree(ROOT / "src", source)
        if not unchanged:
            path = source / "skmix" / change.file
            path.write_text(change.changed(path.read_text(encoding="utf-8")), encoding="utf-8")
        self._process: Any = multiprocessing.get_context("fork").Process(
            target=_run_tests, args=(source, change.tests)
        )
        self._process.start()

    @property
    def sentinel(self) -> int | None:
        """What is ready when the process ends."""
        return None if self._process is None else self._process.sentinel

    def outcome(self) -> str | None:
        """Return whether the change is noticed; None while tests run."""
        if self._process is None:
            return f"not run, without {self.change.needs}"
        status = self._process.exitcode
        if status is None and time.monotonic() - self.began < _LONGEST:
            return None
        self._process.kill()
        self._process.join()
        self._folder.cleanup()
        return "too long" if status is None else _OUTCOMES.get(status, f"not run: pytest ended with {status}")


def judge(chosen: list[Change], n_jobs: int = 1, *, unchanged: bool = False) -> Iterator[tuple[Change, str]]:
    """Yield changes and their outcomes as these become known."""
    waiting, running = list(reversed(chosen)), list[Trial]()
    while waiting or running:
        while waiting and len(running) < n_jobs:
            running.append(Trial(waiting.pop(), unchanged=unchanged))
        wait([trial.sentinel for trial in running if trial.sentinel is not None], timeout=1.0)
        for trial in list(running):
            outcome = trial.outcome()
            if outcome is not None:
                running.remove(trial)
                yield trial.change, outcome


def _run_tests(source: Path, tests: list[str]) -> None:
    """Run tests of a copy of the package in this process, a fork, and exit with pytest's status."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    os.chdir(ROOT)
    paths = [str(path) for path in (source, ROOT / "tests", ROOT / "benchmarks")]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    status = _BROKEN
    try:
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider"]
        status = int(pytest.main([*options, *(str(ROOT / "tests" / test) for test in tests)]))
        import skmix

        if not Path(skmix.__file__).is_relative_to(source):
            status = _BROKEN
    finally:
        # Without the cleaning up of the process that was forked.
        os._exit(status)


def main() -> None:
    """Judge changes and print what was noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only changes with this text in their name")
    parser.add_argument("--jobs", type=int, default=1, help="changes that are judged at a time")
    parser.add_argument("--list", action="store_true", help="list the changes")
    arguments = parser.parse_args()
    chosen = changes(arguments.only)
    if arguments.list:
        for change in chosen:
            print(f"{change.name}\n    - {change.old}\n    + {change.new}\n    {' '.join(change.tests)}")
        print(f"{len(chosen)} changes")
        return
    for library in _LIBRARIES if len(chosen) > 1 else ():
        if importlib.util.find_spec(library.partition(".")[0]) is not None:
            importlib.import_module(library)
    counts: Counter[str] = Counter()
    noticed: dict[tuple[str, ...], list[Change]] = {}
    for change, outcome in judge(chosen, arguments.jobs):
        print(f"{outcome:12} {change.name}", flush=True)
        counts[outcome] += 1
        if outcome == "noticed":
            noticed.setdefault(tuple(change.tests), []).append(change)
    # Tests that fail without a change as well, as where a library is missing, prove nothing.
    for change, outcome in judge([each[0] for each in noticed.values()], arguments.jobs, unchanged=True):
        if outcome != "NOT NOTICED":
            for each in noticed[tuple(change.tests)]:
                print(f"its tests fail without it, too: {each.name}", flush=True)
                counts.subtract(["noticed"])
                counts["without proof"] += 1
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))


if __name__ == "__main__":
    main()
