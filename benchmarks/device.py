"""Fits on an accelerator: whole public fits, their passes, and the digits that single precision loses.

``python benchmarks/device.py --out benchmarks/results/device.json`` on a machine with PyTorch and a CUDA
device. Not part of ``make bench``, which any machine can run. With ``--rows FILE`` (an .npz of `X` and `y`,
see `mnist_rows`), a fit of real rows is timed as well. With ``--peer FILE``, the E-step of another
library (Flash-GMM, TorchGMM, tgmm) is timed on rows of the same sizes; the Python file defines a function
``e_step(X, means, covariances)``.
This is not a test: timings depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import skmix
from skmix.engine import loop as em
from skmix.engine import starts
from skmix.engine.device.expansion import expand
from skmix.engine.loop import Passes, fit
from skmix.engine.numbers import operations_of
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import Factor, Options, Parameters, Setting
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.threads import Workers

FULL = structure_of("full")
# N, M, K, and the most milliseconds of a pass in float64 on an H200.
PASSES = [
    (1_000_000, 16, 16, 2.0),
    (1_000_000, 32, 64, 8.0),
    (200_000, 64, 128, 8.0),
    (200_000, 128, 256, 45.0),
]
PRECISIONS = ("float64", "float32", "tf32")
# Whole fits: covariances, N, M, K, precision, and the most milliseconds of a pass on an H200.
FITS = [
    ("full", 1_000_000, 16, 16, "float64", 1.6),
    ("full", 1_000_000, 32, 64, "float64", 6.5),
    ("full", 1_000_000, 32, 64, "tf32", 3.7),
    ("full", 200_000, 64, 128, "float64", 6.5),
    ("full", 200_000, 128, 256, "float64", 45.0),
    ("full", 1_000_000, 128, 256, "float64", 220.0),
    ("full", 1_000_000, 128, 256, "tf32", 110.0),
    ("full", 1_000_000, 128, 1024, "tf32", 400.0),
    ("diag", 1_000_000, 32, 64, "float64", 1.0),
    ("spherical", 1_000_000, 32, 64, "float64", 1.0),
    ("diag", 1_000_000, 128, 1024, "tf32", 10.0),
    ("spherical", 1_000_000, 128, 1024, "tf32", 10.0),
]
# Distances between centres, in standard deviations of a feature.
CLUSTERS = {"overlapping": 0.7, "apart": 4.0}


def clusters(
    n_rows: int, n_features: int, n_kernels: int, device: str, correlated: bool = False
) -> tuple[Any, Any]:
    """Return rows of overlapping clusters and their centres, made on the device.

    Clusters have unit variance, or each has its own correlations.
    """
    generator = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "device": device, "dtype": torch.float64}
    centres = 0.7 * torch.randn(n_kernels, n_features, **options)
    members = torch.randint(n_kernels, (n_rows,), generator=generator, device=device)
    rows = torch.randn(n_rows, n_features, **options)
    if correlated:
        roots = torch.randn(n_kernels, n_features, n_features, **options) / n_features**0.5
        for k in range(n_kernels):
            own = torch.nonzero(members == k)[:, 0]
            rows[own] += 0.5 * rows[own] @ roots[k]
    return rows + centres[members], centres.cpu().numpy()


class Pass:
    """A pass that can be repeated: rows on the device, and parameters a few passes from the true centres."""

    def __init__(self, X: Any, centres: np.ndarray, precision: str, n_warm: int = 6) -> None:
        options = Options(precision=precision)  # type: ignore[arg-type]
        frame = measure(X, FULL)
        n_kernels, n_features = centres.shape
        found = Parameters(
            starts.uniform_weights(1, n_kernels, 1),
            centres[None],
            np.tile(1.5 * np.eye(n_features), (1, n_kernels, 1, 1)),
        )
        self.source: Any = open_source(X)
        self.setting = Setting(frame, FULL, Workers(1), precision)
        problem = Problem.of(self.source, options, n_kernels, frame)
        self.passes = Passes(problem, problem.rule.placed(self.source.to_device), self.setting)
        self.parameters: Parameters = frame.enter(found, FULL).map(self.source.to_device)
        self.factor = FULL.factor(self.parameters.covariances, X.shape[1])
        self.quick: Any = self.source.wrap_step(self.careful)
        for _ in range(n_warm):
            self.parameters, self.factor, _ = self.step()

    def careful(self, parameters: Parameters, factor: Factor) -> Any:
        """Make one pass that checks for every rare case."""
        return self.passes.step(parameters, factor)

    def n_delicate(self) -> int:
        """Return how many kernels are computed from differences."""
        delicate = expand(self.parameters, self.factor, self.setting).delicate
        return 0 if delicate is None else len(delicate)

    def step(self) -> Any:
        """Make one pass as the loop does: parameters in, parameters out, log-likelihoods on the host."""
        return self.quick(self.parameters, self.factor)


def milliseconds(work: Callable[[], Any], repeats: int = 15) -> tuple[float, float]:
    """Return the median and the shortest time of some runs by the host's clock, with the device idle."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begun))
    return float(np.median(times)), min(times)


def peak_memory(here: Pass) -> int:
    """Return the bytes that one pass, made step by step, needs besides rows and parameters."""
    operations_of(here.source.X).release()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    here.careful(here.parameters, here.factor)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def time_passes(
    device: str, sizes: list[tuple[int, int, int, float]], correlated: bool = False
) -> list[dict[str, Any]]:
    """Time passes of each size in each precision, and compare their results with those of float64."""
    table = []
    for n_rows, n_features, n_kernels, limit in sizes:
        X, centres = clusters(n_rows, n_features, n_kernels, device, correlated)
        exact = Pass(X, centres, "float64")
        reference, _, likelihood = exact.step()
        for precision in PRECISIONS:
            here = exact
            if precision != "float64":
                here = Pass(X, centres, precision, n_warm=0)
                here.parameters, here.factor = exact.parameters, exact.factor
            for _ in range(5):
                got, _, log_likelihood = here.step()
            memory = peak_memory(here)
            median, shortest = milliseconds(here.step)
            spread = reference.covariances.diagonal(dim1=-2, dim2=-1).sqrt()
            outer = spread[..., :, None] * spread[..., None, :]
            row = {
                "rows": n_rows,
                "features": n_features,
                "kernels": n_kernels,
                "precision": precision,
                "median_ms": round(median, 3),
                "shortest_ms": round(shortest, 3),
                "limit_ms": limit if precision == "float64" and not correlated else None,
                "clusters": "correlated" if correlated else "of unit variance",
                "delicate_kernels": here.n_delicate(),
                "memory_beside_the_rows_mb": round(memory / 2**20),
                "error_of_means_in_deviations": float(((got.means - reference.means) / spread).abs().max()),
                "error_of_covariances_in_variances": float(
                    ((got.covariances - reference.covariances) / outer).abs().max()
                ),
                "relative_error_of_log_likelihood": float(
                    np.abs(log_likelihood.sum() / likelihood.sum() - 1.0)
                ),
            }
            table.append(row)
            print(json.dumps(row), flush=True)
    return table


def rows_of_fit(n_rows: int, n_features: int, n_kernels: int, spread: float, device: str) -> np.ndarray:
    """Return rows of correlated clusters on the host, with centres `spread` standard deviations apart."""
    generator = torch.Generator(device).manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "device": device, "dtype": torch.float64}
    centres = spread * torch.randn(n_kernels, n_features, **options)
    members = torch.randint(n_kernels, (n_rows,), generator=generator, device=device).sort().values
    rows = torch.randn(n_rows, n_features, **options)
    bounds = torch.searchsorted(members, torch.arange(n_kernels + 1, device=device)).tolist()
    for k in range(n_kernels):
        own = slice(bounds[k], bounds[k + 1])
        rows[own] += 0.5 * rows[own] @ torch.randn(n_features, n_features, **options) / n_features**0.5
        rows[own] += centres[k]
    shuffled = torch.randperm(n_rows, generator=generator, device=device)
    found: np.ndarray = rows[shuffled].cpu().numpy()
    return found


def time_fits(
    device: str, cases: list[tuple[str, int, int, int, str, float]], n_passes: int = 30
) -> list[dict[str, Any]]:
    """Time whole public fits, from host arrays to the fitted model, with the default start.

    The time of a pass is the median over the passes of one fit, by the host's clock: a pass ends when the
    host has its log-likelihood. The first fit compiles and is not counted.
    """
    table = []
    for covariances, n_rows, n_features, n_kernels, precision, limit in cases:
        for name, spread in CLUSTERS.items():
            X = rows_of_fit(n_rows, n_features, n_kernels, spread, device)
            begun, passes = [], []
            with (
                mock.patch.object(starts, "k_means", timed(starts.k_means, begun)),
                mock.patch.object(em.Run, "step", timed(em.Run.step, passes)),
            ):
                for most in (4, n_passes):
                    model = skmix.SharedKernelMixture(
                        n_kernels,
                        max_iter=most,
                        random_state=0,
                        covariance_type=covariances,
                        device=f"{device}/{precision}",
                        tol=0.0,
                    )
                    passes.clear()
                    before = time.perf_counter()
                    model.fit(X)
                    seconds = time.perf_counter() - before
                model.set_params(max_iter=200, tol=3e-4)
                before = time.perf_counter()
                model.fit(X)
                default = time.perf_counter() - before
            row = {
                "covariances": covariances,
                "rows": n_rows,
                "features": n_features,
                "kernels": n_kernels,
                "precision": precision,
                "clusters": name,
                "pass_ms": round(float(np.median(passes)), 3),
                "mean_pass_ms": round(float(np.mean(passes)), 3),
                "limit_ms": limit,
                "start_ms": round(begun[-1], 3),
                "fit_s": round(seconds, 3),
                "default_fit_s": round(default, 3),
                "passes": n_passes,
                "log_likelihood_per_row": model.log_likelihood_ / n_rows,
            }
            table.append(row)
            print(json.dumps(row), flush=True)
    return table


def time_peer(device: str, path: Path) -> list[dict[str, Any]]:
    """Time the E-step of another library on float32 rows of overlapping clusters, at the true parameters."""
    e_step, table = runpy.run_path(str(path))["e_step"], []
    for covariances, n_rows, n_features, n_kernels in dict.fromkeys(case[:4] for case in FITS):
        X, centres = clusters(n_rows, n_features, n_kernels, device)
        shape = {
            "full": torch.eye(n_features).expand(n_kernels, -1, -1),
            "diag": torch.ones(n_kernels, n_features),
            "spherical": torch.ones(n_kernels),
        }[covariances]
        means, shape = (torch.as_tensor(array, device=device).float() for array in (centres, shape))
        row: dict[str, Any] = {
            "peer": path.stem,
            "covariances": covariances,
            "rows": n_rows,
            "features": n_features,
            "kernels": n_kernels,
        }
        try:
            e_step(X.float(), means, shape.contiguous())
            rows = X.float()
            row["e_step_ms"] = milliseconds(lambda: e_step(rows, means, shape))[0]  # noqa: B023
        except Exception as error:  # a peer that cannot do this size says so in the table
            row["error"] = f"{error!r:.200}"
        table.append(row)
        print(json.dumps(row), flush=True)
    return table


def timed(function: Callable[..., Any], milliseconds: list[float]) -> Callable[..., Any]:
    """Return a function that appends the time of each call, with the device idle, to a list."""

    def work(*given: Any, **others: Any) -> Any:
        torch.cuda.synchronize()
        before = time.perf_counter()
        found = function(*given, **others)
        torch.cuda.synchronize()
        milliseconds.append(1e3 * (time.perf_counter() - before))
        return found

    return work


def profile(device: str, sizes: list[tuple[int, int, int, float]]) -> None:
    """Print where the time of a pass goes."""
    for n_rows, n_features, n_kernels, _ in sizes:
        here = Pass(*clusters(n_rows, n_features, n_kernels, device), "float64")
        given = here.parameters, here.factor
        half = milliseconds(lambda: here.passes.expect(*given))  # noqa: B023
        collected = here.passes.expect(*given)
        other = milliseconds(lambda: here.passes.rule.improve(*collected, here.parameters, here.factor))  # noqa: B023
        print(f"{n_rows} x {n_features}, K={n_kernels}: expect {half[0]:.2f} ms, maximise {other[0]:.2f} ms")
        print(f"  an optimistic pass {milliseconds(here.step)[0]:.2f} ms")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            here.step()
            torch.cuda.synchronize()
        print(found.key_averages().table(sort_by="cuda_time_total", row_limit=12, max_name_column_width=60))


def mnist_rows(folder: Path, out: Path, n_features: int = 40) -> None:
    """Write the MNIST training rows, reduced by principal components, as the .npz that ``--rows`` reads."""
    from mnist import read_images
    from sklearn.decomposition import PCA

    data = read_images(folder)
    rows = PCA(n_features, random_state=0).fit_transform(data.train_images.reshape(-1, 784) / 255.0)
    np.savez_compressed(out, X=rows.astype(np.float32), y=data.train_labels)


def time_rows(path: Path, device: str, n_kernels: int = 200, n_passes: int = 15) -> dict[str, Any]:
    """Time a whole fit of labelled rows: the transfer, the start, and the passes."""
    with np.load(path) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.int64)

    def work() -> Any:
        there = torch.as_tensor(X, device=device)
        frame = measure(there, FULL)
        wanted = starts.Drawing(10, 1, n_kernels, frame, FULL, np.random.RandomState(0))
        found = frame.leave(starts.class_wise(there, y, wanted), FULL)
        return fit(open_source(there, y), found, Options(max_iter=n_passes, tol=0.0), frame=frame)

    result = work()
    median, shortest = milliseconds(work, 3)
    row = {
        "rows": len(X),
        "features": X.shape[1],
        "kernels": n_kernels,
        "passes": n_passes,
        "median_s": median / 1e3,
        "shortest_s": shortest / 1e3,
        "log_likelihood_per_row": float(result.log_likelihood.sum() / len(X)),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--peer", type=Path, action="append", default=[])
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.device, PASSES)
        return
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(arguments.device),
        "torch": torch.__version__,
        "skmix": skmix.__version__,
        "python": platform.python_version(),
        "fits": time_fits(arguments.device, FITS),
        "passes": time_passes(arguments.device, PASSES) + time_passes(arguments.device, PASSES, True),
    }
    if arguments.peer:
        found["peers"] = [row for path in arguments.peer for row in time_peer(arguments.device, path)]
    if arguments.rows:
        found["fit"] = time_rows(arguments.rows, arguments.device)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
