"""What a fresh process waits for before it works: imports beside scikit-learn's, and commands.

    python benchmarks/imports.py
    python benchmarks/imports.py --rounds 20

Prints processor seconds of whole processes, interpreter included, the least of several rounds: a busy
machine makes them longer, never shorter. Bytecode is kept in a folder of the benchmark, as installed packages
have theirs. The last command finds the populations of a study of six samples, which the benchmark makes
first, in a new sample.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

import numpy as np

PEER = "from sklearn.mixture import GaussianMixture"
NAMES = (
    *("GaussianMixture", "SharedKernelMixture", "SharedKernelClassifier", "SharedKernelClassifierCV"),
    *("compose", "load"),
)
N_MARKERS = 8


def seconds_of(command: list[str], folder: Path) -> float:
    """Return the processor time of a program, in seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "OMP_NUM_THREADS": "1"}

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=folder, env=environment)
    return spent() - before


def write_samples(folder: Path) -> list[str]:
    """Write FCS files of six samples and of a new one, and return the names of the six."""
    from flowio import create_fcs

    random = np.random.default_rng(0)
    centres = random.normal(2.5, 1.5, (6, N_MARKERS))
    names = [*(f"sample{number}.fcs" for number in range(6)), "new.fcs"]
    for name in names:
        n_cells = 10_000 if name == "new.fcs" else 4000
        kinds = random.choice(6, n_cells, p=random.dirichlet(np.full(6, 4.0)))
        cells = 50.0 * np.sinh(random.normal(centres[kinds], 0.35))
        with open(folder / name, "wb") as file:
            channels = [f"CD{number}" for number in range(N_MARKERS)]
            create_fcs(file, array("f", cells.astype(np.float32).tobytes()), channels)
    return names[:-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=8, help="processes of each kind")
    rounds = parser.parse_args().rounds
    programs = {PEER: ["-c", PEER]}
    programs |= {text: ["-c", text] for text in (f"from skmix import {name}" for name in NAMES)}
    commands = ("--version", "--help", "compose new.fcs --model study.skmix --table new.csv")
    programs |= {f"skmix {words}": ["-m", "skmix", *words.split()] for words in commands}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        study = ["-m", "skmix", "compose", *write_samples(folder), "-o", "study.skmix"]
        seconds_of(study, folder)
        # The first round writes bytecode, and does not count.
        times = []
        for _ in range(rounds + 1):
            times.append({text: seconds_of(words, folder) for text, words in programs.items()})
    least = {text: min(each[text] for each in times[1:]) for text in programs}
    print(f"{'processor seconds':64}{'all':>6}{'more than scikit-learn':>24}")
    for text, seconds in least.items():
        more = f"{seconds - least[PEER]:+24.2f}" if text.startswith("from skmix") else ""
        print(f"{text:64}{seconds:6.2f}{more}")


if __name__ == "__main__":
    main()
