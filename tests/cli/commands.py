"""Commands run in this process, as tests of several commands need them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import Result
from typer.testing import CliRunner

from skmix import SharedKernelClassifier
from skmix.cli import app

# Three classes of different sizes that overlap, so that whatever is changed changes the model.
SIZES = [10, 14, 18]
KINDS = np.repeat(["u", "v", "w"], SIZES)
X = np.random.RandomState(3).normal(size=(42, 2)).round(2)
X += np.repeat([[0.0, 0.5], [2.0, 0.0], [1.0, 3.0]], SIZES, axis=0)


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": KINDS})


def write_example(place: Path, frame: pd.DataFrame = FRAME) -> Path:
    """Write table.csv, and model.skmix, a classifier of its two numbers."""
    frame.to_csv(place / "table.csv", index=False)
    model = SharedKernelClassifier(2, random_state=0).fit(frame[["a", "b"]], KINDS)
    model.target_name_ = "kind"
    model.save(place / "model.skmix")
    return place


def run(*arguments: object, code: int = 0, given: str | bytes | None = None) -> Result:
    """Run a command, given its standard input, that ends with an exit code and without a traceback."""
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=given)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def said(result: Result) -> str:
    """Return what was said, whatever the width of the terminal."""
    return " ".join(result.stderr.replace("│", " ").split())
