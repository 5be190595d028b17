"""Run the matrix over a covering array of all triples of values, or of pairs, in several processes.

    python tests/matrix/triples.py [--strength 3] [--processes 8] [--limit 100]

It is too long for the tests. Failures are printed with the cell that found them; the exit code is their
number, at most 100. With SKMIX_MATRIX_DEVICE=cuda cells of devices run on a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from crossing import Cell, covering, name_of


def check(cell: Cell) -> tuple[str, str, float]:
    """Return the name of a cell, what was wrong or nothing, and the processor time it took."""
    sys.path.append(str(Path(__file__).parents[1]))
    import test_matrix

    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            test_matrix.check_all_sizes(cell, Path(folder))
            problem = ""
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            problem = f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:300]}"
    return name_of(cell), problem, time.process_time() - begun


def main() -> int:
    """Run all cells and return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--strength", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=int, default=None, help="run only so many cells")
    options = parser.parse_args()
    cells = covering(options.strength)[: options.limit]
    print(f"{len(cells)} cells", flush=True)
    n_failed, seconds = 0, 0.0
    # Threads of other libraries do not survive a fork.
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(check, cell) for cell in cells]):
            name, problem, own = done.result()
            seconds += own
            if problem:
                n_failed += 1
                print(f"FAILED {name}\n    {problem}", flush=True)
    print(f"{n_failed} of {len(cells)} cells failed; {seconds:.0f} s of processor time")
    return min(n_failed, 100)


if __name__ == "__main__":
    sys.exit(main())
