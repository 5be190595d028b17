"""The cost of a pass on a Dask cluster: bytes over the network, and time with one and two worker processes.

Every process counts the bytes that it writes to its connections, including messages of the scheduler. Passes
run in the engine on blocks that workers hold; the same rows in memory, on one thread, are measured in the
same run.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import platform
import time
from pathlib import Path
from typing import Any

# Before NumPy is imported: a worker has one thread, so the rows in memory get one too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from rich.console import Console
from rich.table import Table

import skmix
from skmix.data.dask import open_collections
from skmix.engine.loop import Run, fit
from skmix.engine.problem import open_source
from skmix.engine.records import Options, Parameters
from skmix.engine.rows.blocks import Block, BlockRows

N_FEATURES = 16
N_KERNELS = 16


def start() -> Parameters:
    """Return one start: kernels at random points."""
    random = np.random.default_rng(1)
    return Parameters(
        np.full((1, N_KERNELS, 1), 1.0 / N_KERNELS),
        random.normal(size=(1, N_KERNELS, N_FEATURES)),
        np.tile(np.eye(N_FEATURES), (1, N_KERNELS, 1, 1)),
    )


def rows(n_rows: int, n_blocks: int) -> Any:
    """Return rows that the workers generate."""
    return da.random.default_rng(0).normal(size=(n_rows, N_FEATURES), chunks=(-(-n_rows // n_blocks), -1))


def count_bytes() -> None:
    """Make this process count the bytes that it writes."""
    from distributed.comm import tcp

    if hasattr(tcp, "counted"):
        return
    tcp.counted = 0
    original = tcp.TCP.write

    async def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        n_bytes = await original(self, *args, **kwargs)
        tcp.counted += n_bytes
        return n_bytes

    tcp.TCP.write = write


def counted() -> int:
    """Return the bytes that this process has written."""
    from distributed.comm import tcp

    return int(tcp.counted)


def all_counted(client: Client) -> int:
    """Return the bytes that all processes have written; the scheduler runs in this process."""
    return counted() + sum(client.run(counted).values())


class Passes:
    """Callback that records when each pass ended, and the bytes written until the first and the last."""

    def __init__(self, client: Client | None, n_passes: int) -> None:
        self.client = client
        self.n_passes = n_passes
        self.times: list[float] = []
        self.bytes: list[int] = []

    def __call__(self, run: Run) -> None:
        if self.client is not None and run.n_passes in (2, self.n_passes):
            self.bytes.append(all_counted(self.client))
        self.times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Time of the fastest pass after the first ones: other programs only ever add to a time."""
        return float(np.min(np.diff(self.times)[2:-1]))

    @property
    def n_bytes(self) -> float:
        """Bytes of a pass."""
        return (self.bytes[1] - self.bytes[0]) / (self.n_passes - 2)


class Sizes:
    """A block that records the sizes of the largest message sent to it and of its largest answer."""

    n_features, runs_elsewhere = N_FEATURES, False
    largest = (0, 0)

    def __init__(self, X: np.ndarray) -> None:
        self.block = Block(X)

    def reduce(self, work: Any, merge: Any) -> Any:
        answer = work(self.block)
        if isinstance(answer, tuple):  # of an E-step, not of the summary
            sent = len(pickle.dumps(work)), len(pickle.dumps(answer))
            self.largest = max(sent[0], self.largest[0]), max(sent[1], self.largest[1])
        return answer


def measure(X: Any, client: Client | None, n_passes: int) -> Passes:
    """Make some passes over rows in memory or in blocks."""
    passes = Passes(client, n_passes)
    blocks = None if client is None else open_collections(X, None, None, skmix.__version__)
    source = open_source(X) if blocks is None else BlockRows(blocks)
    fit(source, start(), Options(max_iter=n_passes, tol=0.0), callback=passes)
    return passes


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--rows", type=int, default=2_400_000, help="rows of the largest passes")
    arguments = parser.parse_args()
    n_rows, n_passes = (4000, 6) if arguments.small else (arguments.rows, 10)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    results: dict[str, Any] = {"machine": machine, "n_features": N_FEATURES, "n_kernels": N_KERNELS}
    results["n_starts"] = 1
    results["bytes"], results["passes"] = [], []
    # Keep blocks on their workers: only the necessary traffic is measured.
    dask.config.set({"distributed.scheduler.work-stealing": False})
    for n_workers in (1, 2):
        options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
        with (
            LocalCluster(n_workers=n_workers, memory_limit=None, **options) as cluster,
            Client(cluster) as client,
        ):
            count_bytes()
            client.run(count_bytes)
            found = measure(rows(n_rows, 16), client, n_passes)
            results["passes"].append(
                {"workers": n_workers, "rows": n_rows, "blocks": 16, "seconds": found.seconds}
            )
            # More rows in the same number of blocks, and in more blocks of the same size.
            for share, n_blocks in (
                ((4, 16), (2, 16), (1, 16), (4, 8), (2, 16), (1, 32)) if n_workers == 2 else ()
            ):
                found = measure(rows(n_rows // share, n_blocks), client, n_passes)
                results["bytes"].append(
                    {"rows": n_rows // share, "blocks": n_blocks, "bytes_per_pass": round(found.n_bytes)}
                )
            tiny = measure(rows(64 * 16, 64), client, n_passes)
            results["passes"].append(
                {"workers": n_workers, "rows": 64 * 16, "blocks": 64, "seconds": tiny.seconds}
            )
    in_memory = np.random.default_rng(0).normal(size=(n_rows // 4, N_FEATURES))
    results["in_memory_seconds_per_row"] = measure(in_memory, None, n_passes).seconds / len(in_memory)
    sizes = Sizes(in_memory[:1000])
    fit(BlockRows(sizes), start(), Options(max_iter=2, tol=0.0))
    results["bytes_of_work"], results["bytes_of_answer"] = sizes.largest
    show(results)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


def show(results: dict[str, Any]) -> None:
    """Print the results."""
    table = Table(title="passes on worker processes of one thread")
    for name in ("workers", "rows", "blocks", "seconds a pass", "passes a second"):
        table.add_column(name, justify="right")
    for row in results["passes"]:
        speed = f"{1 / row['seconds']:.2f}"
        table.add_row(
            *(str(row[key]) for key in ("workers", "rows", "blocks")), f"{row['seconds']:.3f}", speed
        )
    Console().print(table)
    table = Table(title="bytes over the network, two workers")
    for name in ("rows", "blocks", "bytes a pass"):
        table.add_column(name, justify="right")
    for row in results["bytes"]:
        table.add_row(str(row["rows"]), str(row["blocks"]), str(row["bytes_per_pass"]))
    Console().print(table)
    print(f"work {results['bytes_of_work']} bytes, answer {results['bytes_of_answer']} bytes")
    print(f"in memory, one thread: {results['in_memory_seconds_per_row'] * 1e9:.0f} ns a row and pass")


if __name__ == "__main__":
    main()
