"""The cost of a pass on a Dask cluster: bytes over the network, and time with one and two worker processes.

    python benchmarks/cluster.py --rows 800000 --out benchmarks/results/cluster.csv

Every process counts the bytes that it writes to its connections, including messages of the scheduler.
Passes are differences of fits of rows that workers hold, in wall-clock time; without workers, of a fit of
rows in memory on one thread. Work stealing is off, so that blocks stay on their workers.
"""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from recording import parser_of, seconds_of_a_pass, show
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

N_FEATURES = N_KERNELS = 16
PASSES = (4, 12)


def count_bytes() -> None:
    """Make this process count the bytes that it writes."""
    from distributed.comm import tcp

    if hasattr(tcp, "counted"):
        return
    tcp.counted, original = 0, tcp.TCP.write

    async def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_bytes = await original(self, *args, **kwargs)
        tcp.counted += n_bytes
        return n_bytes

    tcp.TCP.write = write


def counted() -> int:
    """The bytes that this process has written."""
    from distributed.comm import tcp

    return int(tcp.counted)


def fit(X: Any, n_passes: int) -> None:
    """Fit rows from random means, with a given number of passes."""
    means = np.random.default_rng(1).normal(size=(N_KERNELS, N_FEATURES))
    settings = {
        "init": {"means": means},
        "max_iter": n_passes,
        "tol": 0.0,
        "covariance_prior": None,
        "n_jobs": 1,
    }
    SharedKernelMixture(N_KERNELS, **settings).fit(X)


def measure(client: Client, n_workers: int, n_rows: int, n_blocks: int) -> dict[str, Any]:
    """Seconds and bytes of a pass; rows are on the workers before."""
    chunks = (-(-n_rows // n_blocks), -1)
    X = da.random.default_rng(0).normal(size=(n_rows, N_FEATURES), chunks=chunks).persist()
    seconds = seconds_of_a_pass(lambda n: fit(X, n), PASSES, 2, time.perf_counter)
    written = []
    for n_passes in PASSES:
        before = counted() + sum(client.run(counted).values())
        fit(X, n_passes)
        written.append(counted() + sum(client.run(counted).values()) - before)
    kilobytes = (written[1] - written[0]) / (PASSES[1] - PASSES[0]) / 1e3
    row = {"workers": n_workers, "rows": n_rows, "blocks": n_blocks}
    return row | {"over the network, kB": f"{kilobytes:.0f}", "pass, s": f"{seconds:.3f}"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=800_000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_rows = 4000 if arguments.small else arguments.rows
    rows = []
    dask.config.set({"distributed.scheduler.work-stealing": False})
    for n_workers in (1, 2):
        options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
        with (
            LocalCluster(n_workers=n_workers, memory_limit=None, **options) as cluster,
            Client(cluster) as client,
        ):
            count_bytes()
            client.run(count_bytes)
            cases = [(n_rows, 16), (64 * 16, 64)]
            if n_workers == 2:
                # Fewer rows in the same number of blocks, and in fewer blocks of the same size, or in more.
                cases += [(n_rows // 4, 16), (n_rows // 2, 16), (n_rows // 4, 8), (n_rows, 32)]
            rows += [measure(client, n_workers, *case) for case in cases]
    X = np.random.default_rng(0).normal(size=(n_rows, N_FEATURES))
    seconds = seconds_of_a_pass(lambda n: fit(X, n), PASSES, 2, time.perf_counter)
    rows.append(dict(zip(rows[0], (0, n_rows, 1, "0", f"{seconds:.3f}"), strict=True)))
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
