"""Studies of many cells: time and memory of `skmix compose`, and the time of one new sample.

FCS files of simulated cells, one for each sample, are written to a temporary folder. The populations are
skewed on the scale of arcsinh:150, so that kernels describe them in pieces, as they do with real cells. Each
has its own pattern of low and high markers; their proportions differ between samples. Fresh processes run

- ``skmix compose`` on all files: seconds, processor seconds over all threads, and peak memory, all including
  the start of Python;
- ``skmix compose new.fcs --model study.skmix`` on one more file: the same, and the seconds without imports.

``python benchmarks/cells_size.py --out benchmarks/results/cells_size.json`` has 100 files of 100,000 cells
with ten markers; options make them fewer and smaller. ``--kernels`` leaves out the search for their number,
and ``--device cuda`` computes there. Processor time is more reliable on a busy machine. Runs of other sizes,
on other cores or devices, are kept in the file.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import numpy as np
from flowio import create_fcs
from joblib import Parallel, cpu_count, delayed

from skmix import load
from skmix.io.writing import replacing

# Markers that are low or high in a population, on the scale of arcsinh:150.
LEVELS = (0.5, 4.0)
# Standard deviation of a marker in a population, and the shape of its gamma distribution.
DEVIATION, SHAPE = 0.5, 4.0
# Concentration of the Dirichlet distribution of proportions.
CONCENTRATION = 2.0
# Target: most megabytes of resident memory.
MOST_MEMORY = 2000.0
# Target: most seconds for a new sample, without imports.
MOST_NEW = 1.0

# The program skmix, which then prints its processor seconds, seconds without imports, and peak memory.
PROGRAM = """
import time
import pandas, skmix.cli._tables, skmix.groups
from skmix.__main__ import main
begin = time.perf_counter()
try:
    main()
except SystemExit as end:
    if end.code:
        raise
inside, used = time.perf_counter() - begin, time.process_time()
from out_of_core import peak_memory
print()
print(used, inside, peak_memory())
"""


def write_sample(path: Path, n_cells: int, means: np.ndarray, seed: int) -> None:
    """Write an FCS file of cells of populations with given means (G, M); their proportions are drawn too."""
    random = np.random.default_rng((1, seed))
    shares = random.dirichlet(np.full(len(means), CONCENTRATION))
    cells = means[random.choice(len(means), n_cells, p=shares)]
    skewed = (random.gamma(SHAPE, size=cells.shape) - SHAPE) / np.sqrt(SHAPE)
    cells = 150.0 * np.sinh(cells + DEVIATION * skewed)
    names = [f"M{number + 1}" for number in range(means.shape[1])]
    with path.open("wb") as file:
        create_fcs(file, array("f", cells.astype(np.float32).tobytes()), names)


def run(command: list[str]) -> dict[str, float]:
    """Run ``skmix`` in a fresh process; return its seconds, processor seconds, and peak memory in MB."""
    begin = time.perf_counter()
    given = [sys.executable, "-c", PROGRAM, *command]
    done = subprocess.run(given, check=True, capture_output=True, text=True, cwd=Path(__file__).parent)
    seconds = time.perf_counter() - begin
    processor, inside, peak = map(float, done.stdout.splitlines()[-1].split())
    return {"seconds": seconds, "processor_seconds": processor, "without_imports": inside, "peak_mb": peak}


def measure(folder: Path, sizes: dict[str, int], kernels: str, options: list[str]) -> dict[str, Any]:
    """Write the files, compose them and one more sample, and return what it took."""
    patterns = np.random.default_rng(0).integers(0, 2, size=(sizes["populations"], sizes["markers"]))
    means, samples = np.array(LEVELS)[patterns], folder / "samples"
    samples.mkdir()
    files = (samples / f"sample_{number:04d}.fcs" for number in range(sizes["files"]))
    Parallel(-1)(
        delayed(write_sample)(file, sizes["cells"], means, number) for number, file in enumerate(files)
    )
    write_sample(folder / "new.fcs", sizes["new_cells"], means, sizes["files"])
    study, table = str(folder / "study.skmix"), str(folder / "table.csv")
    command = ["compose", str(samples), "-o", study, "--table", table, "--kernels", kernels]
    found: dict[str, Any] = {"study": run([*command, *options])}
    new = ["compose", str(folder / "new.fcs"), "--model", study, "--table", table]
    found["new"] = run([*new, *options])
    fitted = load(study)
    assert fitted.populations is not None
    distinct = len(np.unique(patterns, axis=0))
    found["found"] = {
        "kernels": len(fitted.model.means_),
        "populations": len(fitted.populations),
        "true_populations": distinct,
        "passes": int(fitted.model.n_iter_),
    }
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100, help="number of samples")
    parser.add_argument("--cells", type=int, default=100_000, help="cells of each sample")
    parser.add_argument("--markers", type=int, default=10, help="markers of each cell")
    parser.add_argument("--populations", type=int, default=20, help="populations that samples share")
    parser.add_argument("--new-cells", type=int, default=10_000, help="cells of the new sample")
    parser.add_argument("--kernels", default="auto", help="number of kernels, or auto")
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="most threads")
    parser.add_argument("--device", help="where to compute, such as cuda")
    parser.add_argument("--temporary", type=Path, help="where to write the files")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    names = ("files", "cells", "markers", "populations", "new_cells")
    sizes, kernels = {name: getattr(arguments, name) for name in names}, arguments.kernels
    if arguments.small:
        sizes, kernels = dict(zip(names, (6, 300, 4, 3, 200), strict=True)), "4"
    options = ["--jobs", str(arguments.jobs)]
    options += [] if arguments.device is None else ["--device", arguments.device]
    with tempfile.TemporaryDirectory(dir=arguments.temporary) as name:
        found = measure(Path(name), sizes, kernels, options)
    study, new, kinds = found["study"], found["new"], found["found"]
    print(
        f"{sizes['files']} files of {sizes['cells']} cells and {sizes['markers']} markers: "
        f"{study['seconds']:.1f} s ({study['processor_seconds']:.1f} s of processors), "
        f"{study['peak_mb']:.0f} MB at most (less than {MOST_MEMORY:.0f} wanted); "
        f"{kinds['kernels']} kernels, {kinds['passes']} passes, {kinds['populations']} populations of "
        f"{kinds['true_populations']}"
    )
    print(
        f"A new sample of {sizes['new_cells']} cells: {new['seconds']:.2f} s "
        f"({new['processor_seconds']:.2f} s of processors), {new['without_imports']:.2f} s without imports "
        f"(at most {MOST_NEW:.0f} wanted), {new['peak_mb']:.0f} MB at most"
    )
    if arguments.out is not None:
        machine = f"{platform.system()} {platform.machine()}"
        own = {"machine": machine, "cores": arguments.jobs, "device": arguments.device, "sizes": sizes}
        runs = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
        runs = [one for one in runs if any(one[name] != value for name, value in own.items())]
        with replacing(arguments.out) as file:
            file.write((json.dumps([*runs, {**own, **found}], indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
