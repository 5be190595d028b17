"""Fits on an accelerator besides plain EM: times compared with the CPU, and differences of the results.

``python benchmarks/device_features.py --out FILE`` on a machine with PyTorch and a CUDA device. Streams,
variational fits, a search, and rows streamed from host memory or a file, compared with the same rows on the
device. With ``--small`` it takes seconds, on any machine: ``--device cpu:0 --small``.
This is not a test: timings depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.device.streamed import PIECE_BYTES
from skmix.engine.loop import Run

# Passes of the first fit, which compiles and allocates.
FEW = 4
# Passes of a timed fit.
MANY = 12
# Classes of labelled rows.
N_CLASSES = 10


def clusters(n_rows: int, n_features: int, n_kernels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of overlapping clusters, and their centres."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.normal(size=(n_kernels, n_features))
    rows = rng.standard_normal((n_rows, n_features))
    rows += centres[rng.integers(n_kernels, size=n_rows)]
    return rows, centres


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the time of some work, and its result."""
    begun = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun, result


def fitted(X: Any, centres: np.ndarray, n_passes: int, y: Any = None, **settings: Any) -> Any:
    """Return a mixture after that many passes from the true centres, with labels if they are given."""
    settings = {"max_iter": n_passes, "tol": 0.0, "covariance_prior": None, "n_jobs": -1} | settings
    if settings.get("inference") == "variational":
        del settings["covariance_prior"]
    return SharedKernelMixture(len(centres), init={"means": centres}, **settings).fit(X, y)


@dataclass
class Times:
    """Milliseconds of the passes of a fit, and of the rest of it."""

    median: float
    mean: float
    first: float
    second: float
    start: float

    def report(self) -> dict[str, float]:
        """Return the times by name; ``ms`` is the median of the passes."""
        return {"ms": self.median} | {
            f"{name}_ms": getattr(self, name) for name in ("mean", "first", "second", "start")
        }


def time_passes(X: Any, centres: np.ndarray, **settings: Any) -> tuple[Times, Any]:
    """Return the times of passes, and the fitted model.

    A pass ends when the host has its log-likelihood. Streamed rows are copied in the first pass, and pinned
    in the second.
    """
    fitted(X, centres, FEW, **settings)
    times: list[float] = []
    step = Run.step

    def timed(run: Run) -> None:
        times.append(seconds(lambda: step(run))[0])

    with patch.object(Run, "step", timed):
        whole, model = seconds(lambda: fitted(X, centres, MANY, **settings))
    found = [float(np.median(times)), float(np.mean(times)), times[0], times[1], whole - sum(times)]
    return Times(*(1e3 * each for each in found)), model


def difference(one: Any, other: Any) -> dict[str, float]:
    """Return the differences of two models, in standard deviations and in relative log-likelihood."""
    scale = np.sqrt(np.diagonal(one.covariances_, axis1=-2, axis2=-1)).max()
    return {
        "means": float(np.abs(one.means_ - other.means_).max() / scale),
        "log_likelihood": float(abs(other.log_likelihood_ / one.log_likelihood_ - 1.0)),
    }


def compare(name: str, X: Any, centres: np.ndarray, device: str, **settings: Any) -> dict[str, Any]:
    """Time passes on the CPU and on the device."""
    on_cpu, ours = time_passes(X, centres, **settings)
    there, theirs = time_passes(X, centres, device=device, **settings)
    found = {"cpu_ms": on_cpu.median, "device_ms": there.median, "difference": difference(ours, theirs)}
    print(name, json.dumps(found), flush=True)
    return found


def time_variational(device: str, shrink: int) -> dict[str, Any]:
    """Time a variational fit."""
    X, centres = clusters(500_000 // shrink, 32, 64)
    return compare("variational", X, centres, device, inference="variational")


def time_streams(device: str, shrink: int) -> dict[str, Any]:
    """Time batches of a stream."""
    X, centres = clusters(400_000 // shrink, 32, 64)
    batches = np.split(X, 4)

    def absorb(**settings: Any) -> tuple[float, Any]:
        model = SharedKernelMixture(len(centres), init={"means": centres}, max_iter=5, n_jobs=-1, **settings)
        model.partial_fit(batches[0])
        took, _ = seconds(lambda: [model.partial_fit(batch) for batch in batches[1:]])
        return 1e3 * took / (len(batches) - 1), model

    (on_cpu, ours), (there, theirs) = absorb(), absorb(device=device)
    found = {"cpu_ms": on_cpu, "device_ms": there, "difference": difference(ours, theirs)}
    print("a batch of partial_fit", json.dumps(found), flush=True)
    return found


def time_search(device: str, shrink: int) -> dict[str, Any]:
    """Time a whole search for the number of kernels."""
    X, _ = clusters(100_000 // shrink, 16, 12)
    settings: dict[str, Any] = {"n_kernels": [4, 8, 12, 16], "covariance_type": ["full", "diag"]}

    def search(**more: Any) -> Any:
        estimator = SharedKernelMixture(tol=1e-3, max_iter=50)
        return SharedKernelMixtureCV(estimator, random_state=0, n_jobs=-1, **settings, **more).fit(X)

    (on_cpu, ours), (there, theirs) = seconds(search), seconds(lambda: search(device=device))
    scores = [each.cv_results_["mean_test_score"] for each in (ours, theirs)]
    found = {
        "cpu_s": on_cpu,
        "device_s": there,
        "same_choice": ours.best_params_ == theirs.best_params_,
        "difference": float(np.abs(scores[1] / scores[0] - 1.0).max()),
    }
    print("search", json.dumps(found), flush=True)
    return found


@contextmanager
def room(n_bytes: float) -> Iterator[None]:
    """Pretend that a device has memory for this many bytes of rows."""
    places = ("skmix.engine.device.streamed.room_on", "skmix.model.devices.room_on")
    with patch(places[0], lambda device: n_bytes), patch(places[1], lambda device: n_bytes):
        yield


def time_streaming(device: str, shrink: int) -> dict[str, Any]:
    """Time streamed rows, compared with the same rows on the device: the aim is half the speed.

    A pass over streamed rows takes at least the time of their transfer, `link_ms`. With few features and
    kernels this exceeds the time of the work; with many it does not.
    """
    found: dict[str, Any] = {}
    link = rate_of_link(device, (1 << 28) // shrink)
    for n_rows, n_features, n_kernels, n_classes in (
        (8_000_000, 16, 16, 1),
        (8_000_000, 16, 16, N_CLASSES),
        (2_000_000, 32, 64, 1),
        (500_000, 128, 256, 1),
    ):
        X, centres = clusters(n_rows // shrink, n_features, n_kernels)
        y = None if n_classes == 1 else np.random.default_rng(1).integers(n_classes, size=len(X))
        inside, ours = time_passes(X, centres, device=device, y=y)
        link_ms = X.nbytes / link / 1e6
        own: dict[str, Any] = {
            **{f"in_memory_{name}": each for name, each in inside.report().items()},
            "pieces": X.nbytes / PIECE_BYTES,
            "link_ms": link_ms,
            "best_speed": min(1.0, inside.median / link_ms),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npy"
            np.save(path, X)
            for name, rows, n_bytes in (
                ("array", X, 0.0),
                ("array, half of it stays", X, 0.5 * X.nbytes),
                ("file", path, 0.0),
            ):
                with room(n_bytes):
                    took, theirs = time_passes(rows, centres, device=device, y=y)
                own[name] = {
                    **took.report(),
                    "speed": inside.median / took.median,
                    "gigabytes_per_second": X.nbytes / took.median / 1e6,
                    "difference": difference(ours, theirs),
                }
        name = f"{len(X)} x {n_features}, {n_kernels}" + ("" if y is None else f", {n_classes} classes")
        found[name] = own
        print("streaming", name, json.dumps(own, indent=1), flush=True)
    return found


def rate_of_link(device: str, n_bytes: int = 1 << 28) -> float:
    """Return the gigabytes per second from pinned memory to the device."""
    rows = torch.ones(n_bytes // 8, dtype=torch.float64, pin_memory=torch.device(device).type != "cpu")
    found = n_bytes / min(seconds(lambda: rows.to(device))[0] for _ in range(6)) / 1e9
    print("GB/s", found, flush=True)
    return found


def main() -> None:
    """Time everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows")
    parser.add_argument("--only", nargs="*", help="names of some of the parts")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    shrink = 100 if arguments.small else 1
    parts: dict[str, Callable[[], Any]] = {
        "streams": lambda: time_streams(arguments.device, shrink),
        "variational": lambda: time_variational(arguments.device, shrink),
        "search": lambda: time_search(arguments.device, shrink),
        "streaming": lambda: time_streaming(arguments.device, shrink),
    }
    found = {name: part() for name, part in parts.items() if name in (arguments.only or parts)}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
