"""A file that is larger than the memory it takes to fit it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CODE = """
import json, sys, warnings
from pathlib import Path
from skmix import SharedKernelMixture

warnings.simplefilter("ignore")

def peak():
    # Of this program alone; what getrusage says may be the parent's.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024

folder, n_rows, peaks = Path(sys.argv[1]), [], []
# Small ones first: the peak never falls.
for name in ("small", "large"):
    rows, labels = folder / f"{name}.npy", folder / f"{name}-labels.npy"
    model = SharedKernelMixture(2, covariance_type="diag", max_iter=1, random_state=0).fit(rows, labels)
    n_rows.append([int(model.class_count_.sum()), len(model.score_samples(rows))])
    peaks.append(peak())
print(json.dumps({"peaks": peaks, "n_rows": n_rows}))
"""


def write(folder: Path, name: str, n_copies: int) -> int:
    """Write many copies of some rows and return their number."""
    some = np.random.default_rng(0).normal(size=(20_000, 16))
    rows = np.lib.format.open_memmap(
        folder / f"{name}.npy", "w+", np.float64, (n_copies * len(some), some.shape[1])
    )
    for copy in range(n_copies):
        rows[copy * len(some) : (copy + 1) * len(some)] = some
    np.save(folder / f"{name}-labels.npy", np.arange(len(rows)) % 2)
    return len(rows)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell a process its peak memory")
    small, large = write(tmp_path, "small", 1), write(tmp_path, "large", 125)
    size = (tmp_path / "large.npy").stat().st_size / 2**20
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["n_rows"] == [[n, n] for n in (small, large)]
    before, after = told["peaks"]
    # Some blocks, and the scores, which are an array.
    assert size > 300
    assert after - before < 0.5 * size, f"{after - before:.0f} MB more for a file of {size:.0f} MB"
