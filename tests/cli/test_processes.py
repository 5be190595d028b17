"""The program in a shell: pipes, interrupts, and terminals that know only ASCII."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import skmix

SKMIX = [str(Path(sys.executable).parent / "skmix")]
STREAMS = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
posix = pytest.mark.skipif(os.name != "posix", reason="sends signals and reads named pipes")


@pytest.fixture(scope="module")
def table() -> bytes:
    random = np.random.default_rng(0)
    kinds = np.array(["rösti", "soup"])[np.arange(200) % 2]
    rows = random.normal(size=(200, 2)) + 4.0 * (kinds == "soup")[:, None]
    lines = [f"{a},{b},{kind}" for (a, b), kind in zip(rows.tolist(), kinds, strict=True)]
    return ("\n".join(["a,b,kind", *lines]) + "\n").encode()


@pytest.mark.slow
def test_a_model_through_pipes_and_on_a_plain_terminal(tmp_path: Path, table: bytes) -> None:
    done = subprocess.run(
        [*SKMIX, "fit", "-", "--target", "kind", "--kernels", "2", "-o", "-"],
        input=table,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    path = tmp_path / "kind.skmix"
    path.write_bytes(done.stdout)
    assert skmix.load(path).classes_.tolist() == ["rösti", "soup"]
    assert "200 rows, 2 features, 2 classes" in done.stderr.decode()
    shown = subprocess.run(
        [*SKMIX, "show", path],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii:backslashreplace", "NO_COLOR": "1"},
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.isascii()
    assert b"1.000" in shown.stdout


@posix
@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.csv", np.random.default_rng(0).normal(size=(20_000, 2))
    np.savetxt(path, rows, delimiter=",", header="a,b", comments="")
    skmix.SharedKernelMixture(2, random_state=0).fit(path).save(tmp_path / "m")
    with subprocess.Popen([*SKMIX, "predict", tmp_path / "m", path], **STREAMS) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"kernel,p_0,p_1,log_density,outlier\n"
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait() == 0


@posix
@pytest.mark.slow
def test_an_interrupt_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    fifo, out = tmp_path / "rows", tmp_path / "out" / "m"
    os.mkfifo(fifo)
    command = [*SKMIX, "fit", fifo, "-o", out]
    # What a shell runs in the background ignores interrupts, and so would all that it starts.
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    # Opening a pipe waits for the other side, so that the program is then reading.
    with subprocess.Popen(command, **STREAMS, **listening) as program:
        with open(fifo, "wb") as pipe:
            pipe.write(b"a,b\n1,2\n")
            pipe.flush()
            program.send_signal(signal.SIGINT)
        # An interrupt just before a read begins is noticed only after it, and the end of the file ends it.
        _, errors = program.communicate()
    assert program.returncode == 130
    assert errors == b"Error: interrupted; nothing was written.\n"
    assert list(out.parent.iterdir()) == []
