"""Fits on an accelerator, from host arrays to the fitted model.

    python benchmarks/device.py fits --out benchmarks/results/device.csv
    python benchmarks/device.py precision --out benchmarks/results/device_precision.csv
    python benchmarks/device.py streaming --out benchmarks/results/device_streaming.csv

- ``fits``: a pass, the start and a whole default fit, of correlated clusters that overlap or lie apart.
- ``precision``: passes in float64, float32 and tf32 and on all cores, and what the means lose, in standard
  deviations of a kernel, after the same passes from one start.
- ``streaming``: passes over rows that do not fit into the device's memory, from an array and from a file,
  beside the same rows on the device. The memory is said to be full.

It needs PyTorch and a CUDA device; ``--device cpu:0 --small`` only checks that everything runs.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from recording import clusters, parser_of, seconds_of_a_pass, show
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

# Covariances, N, M, K and precision.
FITS = (
    ("full", 1_000_000, 16, 16, "float64"),
    ("full", 1_000_000, 32, 64, "float64"),
    ("full", 1_000_000, 32, 64, "tf32"),
    ("full", 200_000, 64, 128, "float64"),
    ("full", 200_000, 128, 256, "float64"),
    ("full", 1_000_000, 128, 256, "tf32"),
    ("diag", 1_000_000, 32, 64, "float64"),
    ("spherical", 1_000_000, 32, 64, "float64"),
    ("diag", 1_000_000, 128, 1024, "tf32"),
)
SIZES = ((1_000_000, 16, 16), (1_000_000, 32, 64), (200_000, 64, 128), (200_000, 128, 256))
# N, M, K and classes.
STREAMED = ((8_000_000, 16, 16, 1), (8_000_000, 16, 16, 10), (2_000_000, 32, 64, 1), (500_000, 128, 256, 1))
SPREADS = {"overlapping": 0.7, "apart": 4.0}
SMALL = 2000  # rows
PASSES = (4, 24)


def correlated(n_rows: int, n_features: int, n_kernels: int, spread: float) -> np.ndarray:
    """Rows of clusters that have correlations of their own."""
    random = np.random.default_rng(0)
    centres = spread * random.standard_normal((n_kernels, n_features))
    members = random.integers(n_kernels, size=n_rows)
    X = random.standard_normal((n_rows, n_features))
    for k in range(n_kernels):
        turn = random.standard_normal((n_features, n_features)) / n_features**0.5
        X[members == k] += 0.5 * X[members == k] @ turn + centres[k]
    return X


def seconds(model: Any, X: np.ndarray) -> float:
    """The time of a fit; a fit ends when the host has its result."""
    begun = time.perf_counter()
    model.fit(X)
    return time.perf_counter() - begun


def fits(device: str, small: bool) -> Iterator[dict[str, Any]]:
    """Times of whole fits; the first fit compiles and does not count."""
    for structure, n_rows, n_features, n_kernels, precision in FITS[:1] if small else FITS:
        for distance, spread in SPREADS.items():
            X = correlated(SMALL if small else n_rows, n_features, n_kernels, spread)
            settings = {"covariance_type": structure, "device": f"{device}/{precision}", "random_state": 0}
            model = SharedKernelMixture(n_kernels, **settings)
            seconds(model, X)
            default, n_passes = seconds(model, X), model.n_iter_

            def fit(n_passes: int, model: Any = model, X: np.ndarray = X) -> Any:
                return clone(model).set_params(max_iter=n_passes, tol=0.0).fit(X)

            each = seconds_of_a_pass(fit, PASSES, 3, time.perf_counter)
            yield {
                **{"covariances": structure, "rows": len(X), "features": n_features, "kernels": n_kernels},
                **{"precision": precision, "clusters": distance, "pass, ms": f"{1e3 * each:.1f}"},
                "start, ms": f"{1e3 * (default - n_passes * each):.0f}",
                "default fit, s": f"{default:.2f}",
            }


def precision(device: str, small: bool) -> Iterator[dict[str, Any]]:
    """Times of passes by precision, and errors of the means against float64."""
    for n_rows, n_features, n_kernels in SIZES[:1] if small else SIZES:
        X, centres = clusters(SMALL if small else n_rows, n_features, n_kernels, SPREADS["overlapping"])
        row: dict[str, Any] = {"rows": len(X), "features": n_features, "kernels": n_kernels}
        errors, exact = {}, None
        precisions = ("float64", "float32") if "cpu" in device else ("float64", "float32", "tf32")
        for name, place in {
            "cores, float64": None,
            **{name: f"{device}/{name}" for name in precisions},
        }.items():

            def fit(n_passes: int, place: str | None = place) -> Any:
                start = {"means": centres}  # noqa: B023
                settings = {"max_iter": n_passes, "tol": 0.0, "covariance_prior": None, "n_jobs": -1}
                return SharedKernelMixture(len(start["means"]), init=start, device=place, **settings).fit(X)  # noqa: B023

            fit(PASSES[0])
            row[f"{name}, ms"] = f"{1e3 * seconds_of_a_pass(fit, PASSES, 3, time.perf_counter):.1f}"
            model = fit(PASSES[0])
            exact = model if exact is None or name == "float64" else exact
            spread = np.sqrt(np.diagonal(exact.covariances_, axis1=-2, axis2=-1))
            if name in ("float32", "tf32"):
                errors[f"error of means, {name}"] = f"{(abs(model.means_ - exact.means_) / spread).max():.0e}"
        yield row | errors


def streaming(device: str, small: bool) -> Iterator[dict[str, Any]]:
    """Times of passes over streamed rows."""
    full = [
        mock.patch(f"skmix.{place}.room_on", return_value=0.0)
        for place in ("engine.device.streamed", "model.devices")
    ]
    for n_rows, n_features, n_kernels, n_classes in STREAMED[:2] if small else STREAMED:
        X, centres = clusters(SMALL if small else n_rows, n_features, n_kernels, 1.5)
        y = np.arange(len(X)) % n_classes if n_classes > 1 else None

        def each(rows: Any, y: Any = y, centres: np.ndarray = centres) -> float:
            settings = {"init": {"means": centres}, "tol": 0.0, "covariance_prior": None, "n_jobs": -1}

            def fit(n_passes: int) -> Any:
                return SharedKernelMixture(len(centres), max_iter=n_passes, device=device, **settings).fit(
                    rows, y
                )

            return seconds_of_a_pass(fit, (2, 10), 2, time.perf_counter)

        row = {"rows": len(X), "features": n_features, "kernels": n_kernels, "classes": n_classes}
        times = {"a pass on the device": each(X)}
        with tempfile.TemporaryDirectory() as folder, full[0], full[1]:
            np.save(Path(folder) / "rows.npy", X)
            times |= {"from an array": each(X), "from a file": each(Path(folder) / "rows.npy")}
        row |= {f"{name}, ms": f"{1e3 * value:.0f}" for name, value in times.items()}
        streamed = list(times.items())[1:]
        yield row | {f"{name}, GB/s": f"{X.nbytes / value / 1e9:.0f}" for name, value in streamed}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["fits", "precision", "streaming"])
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    part = {"fits": fits, "precision": precision, "streaming": streaming}[arguments.part]
    show(part(arguments.device, arguments.small), arguments.out)


if __name__ == "__main__":
    main()
