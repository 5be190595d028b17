"""Studies of many cells: time and memory of `compose`, and the time of one new sample.

FCS files of simulated cells, one for each sample, are written to a temporary folder. The populations are
skewed on the scale of arcsinh:150, so that kernels describe them in pieces, as they do with real cells. Each
has its own pattern of low and high markers; their proportions differ between samples. Fresh processes run

- `compose` on all files, with the table of proportions: seconds, processor seconds over all threads, and peak
  memory, all including the start of Python;
- `Study.apply_to` on one more file, from the saved study: the same, and the seconds without imports.

``python benchmarks/cells_size.py --out benchmarks/results/cells_size.json`` has 100 files of 100,000 cells
with ten markers; options make them fewer and smaller. ``--kernels`` leaves out the search for their number,
and ``--device cuda`` computes there. Processor time is more reliable on a busy machine. Runs of other sizes,
on other cores or devices, are kept in the file.
"""

from __future__ import annotations

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
from recording import parser_of

from skmix import load
from skmix.data.write import replacing

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

# A fresh process, which prints its processor seconds, seconds without imports, and peak memory.
PROGRAM = """
import json, re, sys, time
from pathlib import Path
import pandas
from skmix import compose, load

given, begin = json.loads(sys.argv[1]), time.perf_counter()
if given["model"] is None:
    study = compose(given["samples"], **given["options"])
    study.save(given["out"], overwrite=True)
else:
    study = load(given["model"])
    study.model.set_params(**given["options"])
    study = study.apply_to(given["samples"])
study.proportions.to_csv(given["table"])
inside, used = time.perf_counter() - begin, time.process_time()
status = Path("/proc/self/status")  # of Linux
peak = re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1] if status.exists() else "nan"
print(used, inside, float(peak) / 1000)
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


def run(**given: Any) -> dict[str, float]:
    """Describe samples in a fresh process; return its seconds, processor seconds, and peak memory in MB."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - begin
    processor, inside, peak = map(float, done.stdout.splitlines()[-1].split())
    return {"seconds": seconds, "processor_seconds": processor, "without_imports": inside, "peak_mb": peak}


def measure(
    folder: Path, sizes: dict[str, int], n_kernels: int | None, options: dict[str, Any]
) -> dict[str, Any]:
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
    of_fit = {"n_kernels": n_kernels, **options}
    found: dict[str, Any] = {
        "study": run(samples=str(samples), model=None, out=study, table=table, options=of_fit),
        "new": run(samples=str(folder / "new.fcs"), model=study, table=table, options=options),
    }
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
    parser = parser_of(__doc__)
    parser.add_argument("--files", type=int, default=100, help="number of samples")
    parser.add_argument("--cells", type=int, default=100_000, help="cells of each sample")
    parser.add_argument("--markers", type=int, default=10, help="markers of each cell")
    parser.add_argument("--populations", type=int, default=20, help="populations that samples share")
    parser.add_argument("--new-cells", type=int, default=10_000, help="cells of the new sample")
    parser.add_argument("--kernels", type=int, help="number of kernels, chosen by default")
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="most threads")
    parser.add_argument("--device", help="where to compute, such as cuda")
    parser.add_argument("--temporary", type=Path, help="where to write the files")
    arguments = parser.parse_args()
    names = ("files", "cells", "markers", "populations", "new_cells")
    sizes, kernels = {name: getattr(arguments, name) for name in names}, arguments.kernels
    if arguments.small:
        sizes, kernels = dict(zip(names, (6, 300, 4, 3, 200), strict=True)), 4
    options = {"n_jobs": arguments.jobs, "device": arguments.device}
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
