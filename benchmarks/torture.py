"""Fits of hostile tables and settings: each must be clean, or refused with a reason.

Tables have few rows, duplicates, constant and collinear columns, gaps, grids of whole numbers, outliers,
large offsets, scales from 1e-150 to 1e150 and denormal numbers, in double and single precision, with classes
of one row, rows without a label, and weights of zero. Settings are drawn from those of all estimators. A fit
is clean if no parameter is NaN, weights and probabilities sum to one, even for rows at 1e300, log-densities
are finite, the log-likelihood or the bound never falls if EM guarantees it, a saved model predicts the same,
and there is no warning except about convergence. It is refused if skmix or scikit-learn raises a ValueError.
Anything else counts as failed, and so does a fit of more than ten seconds of CPU time.

Each fit is determined by its number and the seed: ``--seed S --first NUMBER --fits 1`` repeats it.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Printed
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from skmix._errors import ArgumentError
from skmix.data.write import replacing
from skmix.engine.records import FloatArray
from skmix.engine.structures import STRUCTURES

# Most seconds of CPU time of a fit.
ALLOWED = 10.0
# Seconds of CPU time after which a fit is stopped.
ENDED = 60.0
# Largest fall of a log-likelihood by rounding, relative to its magnitude or the number of rows.
ROUNDING = 1e-9
# Smallest variance floor with which it does not fall further for correlated features, as documented.
SMALLEST_FLOOR = 1e-8
# Documented warnings besides those of convergence; the last one comes from scikit-learn's check for finite
# numbers, for rows whose sum overflows.
EXPECTED = re.compile(
    "rows can be held out|The number of unique classes is greater|The least populated class|"
    "invalid value encountered in reduce"
)
# Attributes that may be infinite: for failed starts, without a rejection of rows, and without shifts.
INFINITE = ("start_log_likelihoods_", "threshold_", "group_shift_")
# Shares of the estimators among the fits.
KINDS = {"classifier": 0.36, "mixture": 0.36, "gaussian": 0.26, "classifier CV": 0.01, "mixture CV": 0.01}


@dataclass
class Table:
    """Rows (N, M), their labels and weights (N,), and what is hostile about them."""

    X: np.ndarray
    y: Any
    weights: FloatArray | None
    traits: list[str]


@dataclass
class Outcome:
    """The outcome of a fit."""

    number: int
    kind: str
    outcome: str  # clean, refused or failed
    reasons: list[str]
    seconds: float  # of CPU time, for the fit alone
    table: str
    settings: str


def hostile_table(random: np.random.Generator, kind: str) -> Table:
    """Return a random table for an estimator."""

    def happens(share: float, trait: str) -> bool:
        found = bool(random.uniform() < share)
        if found:
            traits.append(trait)
        return found

    traits: list[str] = []
    n_rows = int(random.choice([random.integers(1, 8), random.integers(8, 40), random.integers(40, 150)]))
    n_features = int(random.choice([1, 2, 3, 4, 5, 8, 13], p=[0.15, 0.25, 0.2, 0.15, 0.1, 0.1, 0.05]))
    clusters = random.normal(scale=3.0, size=(int(random.integers(1, 5)), n_features))
    of_cluster = random.integers(len(clusters), size=n_rows)
    X = clusters[of_cluster] + random.normal(size=(n_rows, n_features))
    X = X @ (np.eye(n_features) + 0.5 * random.normal(size=(n_features, n_features)))
    if happens(0.15, "whole numbers"):
        X = np.round(X * random.choice([0.3, 1.0, 10.0]))
    if happens(0.1, "outliers"):
        X[random.integers(n_rows)] *= 10.0 ** random.uniform(2, 12)
    if happens(0.2, "duplicates"):
        X = X[random.integers(max(1, n_rows // random.integers(2, 8)), size=n_rows)]
    if happens(0.1, "constant column"):
        X[:, random.integers(n_features)] = random.choice([0.0, 1.0, -1e9, 1e-9])
    if n_features > 1 and happens(0.2, "collinear columns"):
        mixed = X @ random.normal(size=n_features)
        noise = random.choice([0.0, 10.0 ** random.uniform(-14, -3)])
        X[:, random.integers(n_features)] = mixed + noise * random.normal(size=n_rows)
    if happens(0.15, "offsets"):
        X = X + 10.0 ** random.uniform(2, 13) * random.normal(size=n_features)
    if happens(0.2, "units"):
        X = X * 10.0 ** random.uniform(-9, 9, size=n_features)
    elif happens(0.12, "extreme units"):
        X = X * 10.0 ** random.uniform(-150, 150, size=n_features)
    elif happens(0.08, "extreme scale"):
        X = X * 10.0 ** random.uniform(-150, 150)
    elif happens(0.03, "denormal numbers"):
        X = X * random.choice([1e-310, 1e-320])
    elif happens(0.02, "huge numbers"):
        X = np.clip(X, -1e7, 1e7) * 1e300
    if happens(0.15, "single precision"):
        X = np.clip(X, -1e36, 1e36).astype(np.float32)
    if happens(0.01, "infinite"):
        X[random.integers(n_rows), random.integers(n_features)] = np.inf
    if kind != "gaussian" and happens(0.2, "gaps"):
        missing = random.uniform(size=X.shape) < random.choice([0.05, 0.3, 0.7])
        if random.uniform() < 0.9:  # every row and every feature has a value
            missing[np.arange(n_rows), np.arange(n_rows) % n_features] = False
        X[missing] = np.nan
    n_classes = int(random.integers(1, 6)) if not happens(0.05, "groups") else 20
    y: Any = of_cluster % n_classes if random.uniform() < 0.5 else random.integers(n_classes, size=n_rows)
    if happens(0.1, "class of one row"):
        y[0] = n_classes
    if happens(0.15, "text"):
        y = np.array([f"class {label}" for label in y], dtype=object)
    if happens(0.15, "unlabelled rows"):
        y = y.astype(object)
        y[random.uniform(size=n_rows) < random.choice([0.2, 0.9])] = (
            None if random.uniform() < 0.5 else np.nan
        )
    if kind.startswith("mixture") and happens(0.3, "no labels"):
        y = None
    weights = None
    if kind != "gaussian" and happens(0.2, "weights"):
        weights = random.exponential(size=n_rows) * 10.0 ** random.choice([0, 0, -300, -8, 8])
        if happens(0.5, "weights of zero"):
            weights[random.uniform(size=n_rows) < random.choice([0.3, 0.9])] = 0.0
    return Table(X, y, weights, traits)


def hostile_settings(random: np.random.Generator, kind: str, table: Table) -> dict[str, Any]:
    """Return random settings of an estimator, most of them at their defaults."""
    if kind == "gaussian":
        return gaussian_settings(random, table)
    choices: dict[str, Callable[[], Any]] = {
        "covariance_type": lambda: str(random.choice(list(STRUCTURES))),
        "variance_floor": lambda: float(random.choice([0.0, 1e-20, 1e-12, 1e-9, 1e-3, 1.0])),
        "covariance_prior": lambda: [None, None, None, "weak", 0.01, 10.0, 1e6][random.integers(7)],
        "weight_prior": lambda: ["hierarchical", 1.0, 1.5, 100.0][random.integers(4)],
        "init": lambda: str(random.choice(["class", "k-means", "random_from_data", "uniform"])),
        "n_init": lambda: int(random.integers(2, 5)),
        "inference": lambda: "variational",
        "stopping": lambda: "per-class",
        "degrees": lambda: [None, 1.0, 30.0][random.integers(3)],
    }
    if kind == "classifier":
        choices["priors"] = lambda: "uniform"
        choices["feature_sets"] = lambda: random_feature_sets(random, table.X.shape[1])
        choices["reject_below"] = lambda: 0.1
    else:
        choices["group_shift"] = lambda: [1.0, 1e-3, 100.0, "auto"][random.integers(4)]
    settings: dict[str, Any] = {"random_state": 0, "max_iter": int(random.choice([1, 5, 50, 200]))}
    if random.uniform() < 0.9:
        settings["n_kernels"] = int(random.integers(1, 9))
    # Floors and the structure matter most; floors matter without a prior.
    for name, share in (("covariance_type", 0.6), ("variance_floor", 0.4), ("covariance_prior", 0.5)):
        if random.uniform() < share:
            settings[name] = choices.pop(name)()
    for name in random.choice(sorted(choices), size=random.integers(4), replace=False).tolist():
        settings[name] = choices[name]()
    if "stopping" in settings:
        settings["tol"] = 1e-4
    if "degrees" in settings:
        settings["tail"] = "t"
    if random.uniform() < 0.15:
        settings["init"] = given_start(random, table, settings)
        settings["n_kernels"] = len(settings["init"]["means"])
        if random.uniform() < 0.5:
            settings["freeze"] = str(random.choice(["kernels", "weights"]))
    return settings


def gaussian_settings(random: np.random.Generator, table: Table) -> dict[str, Any]:
    """Return settings of the drop-in."""
    return {
        "n_components": int(random.integers(1, 7)),
        "covariance_type": str(random.choice(["full", "tied", "diag", "spherical"])),
        "init_params": str(random.choice(["kmeans", "k-means++", "random", "random_from_data"])),
        "reg_covar": float(random.choice([1e-6, 1e-6, 0.0, 1e-12, 1.0])),
        "n_init": int(random.choice([1, 1, 3])),
        "max_iter": int(random.choice([1, 10, 100])),
        "random_state": 0,
    }


def random_feature_sets(random: np.random.Generator, n_features: int) -> list[list[int]]:
    """Return one to three feature sets."""
    order = random.permutation(n_features)
    return [part.tolist() for part in np.array_split(order, min(n_features, random.integers(1, 4)))]


def given_start(random: np.random.Generator, table: Table, settings: dict[str, Any]) -> dict[str, Any]:
    """Return a start at some of the rows, with or without covariances."""
    n_features, n_kernels = table.X.shape[1], int(random.integers(1, 5))
    means = np.nan_to_num(
        table.X[random.integers(len(table.X), size=n_kernels)].astype(np.float64), posinf=1.0
    )
    structure = settings.get("covariance_type", "full")
    if random.uniform() < 0.5:
        return {"means": means}
    variances = 10.0 ** random.uniform(-12, 6, size=n_features)
    covariances = {
        "full": np.tile(np.diag(variances), (n_kernels, 1, 1)),
        "tied": np.diag(variances),
        "diag": np.tile(variances, (n_kernels, 1)),
        "spherical": np.full(n_kernels, variances[0]),
    }[structure]
    return {"means": means, "covariances": covariances}


def make(kind: str, settings: dict[str, Any]) -> Any:
    """Return an estimator."""
    if kind == "gaussian":
        return GaussianMixture(**settings)
    if kind == "classifier":
        return SharedKernelClassifier(**settings)
    if kind == "mixture":
        return SharedKernelMixture(**settings)
    search: dict[str, Any] = {"n_kernels": (1, 2), "covariance_type": ("diag",), "random_state": 0}
    settings = {**settings, "max_iter": 20}
    for name in ("n_kernels", "covariance_type", "init", "feature_sets"):
        settings.pop(name, None)
    if kind == "classifier CV":
        settings.pop("group_shift", None)
        return SharedKernelClassifierCV(SharedKernelClassifier(**settings), tune=False, n_members=2, **search)
    return SharedKernelMixtureCV(SharedKernelMixture(**settings), n_members=2, **search)


def problems(model: Any, table: Table, folder: Path) -> Iterator[str]:
    """Yield the problems of a fitted model."""
    for part in (model, *getattr(model, "models_", ())):
        yield from bad_attributes(part)
        yield from falls(part, len(table.X))
    X, M = table.X, table.X.shape[1]
    far = np.array([[1e300] * M, [-1e300] * M, [1e30] * M, [-1e30] + [0.0] * (M - 1)])
    near = X[~np.isinf(X).any(axis=1)]
    rows = {"training rows": near, "far rows": far, "far rows in single precision": far[2:].astype("f4")}
    for name, own in rows.items():
        probabilities, densities = model.predict_proba(own), model.score_samples(own)
        sums = probabilities.sum(axis=1)
        if not np.allclose(sums, 1.0, rtol=0.0, atol=1e-5) or not (probabilities >= 0.0).all():
            yield f"probabilities of {name} do not sum to one"
        if not np.isfinite(densities).all():
            yield f"log-densities of {name} are not finite"
        if len(model.predict(own)) != len(own):
            yield "predictions are missing"
    if hasattr(model, "sample") and not np.isfinite(model.sample(3)[0]).all():
        yield "drawn rows are not finite"
    if np.isnan(X).any() and hasattr(model, "impute") and not np.isfinite(model.impute(near)).all():
        yield "imputed values are not finite"
    path = folder / "model.skmix"
    try:
        model.save(path)
        again = load(path)
    except ValueError as error:
        yield f"cannot be saved and loaded: {general(str(error))}"
        return
    if not np.array_equal(again.predict_proba(near), model.predict_proba(near)):
        yield "a loaded model predicts otherwise"


def bad_attributes(model: Any) -> Iterator[str]:
    """Yield the problems of a model's parameters."""
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, (float, np.ndarray)):
            numbers = np.asarray(value)
            if numbers.dtype.kind != "f":
                continue
            # A search that cannot hold out any row has no score.
            if np.isnan(numbers).any() and name != "best_score_":
                yield f"{name} has NaN"
            elif np.isinf(numbers).any() and name not in INFINITE:
                yield f"{name} is infinite"
    for name in ("weights_", "class_prior_"):
        if name in vars(model) and not np.allclose(
            getattr(model, name).sum(axis=0), 1.0, rtol=0.0, atol=1e-5
        ):
            yield f"{name} does not sum to one"


def falls(model: Any, n_rows: int) -> Iterator[str]:
    """Yield where the log-likelihood, or the bound, falls although the update rule guarantees otherwise."""
    path, floor = None, getattr(model, "variance_floor", 0.0)
    if getattr(model, "covariance_type", "") not in ("diag", "spherical") and floor < SMALLEST_FLOOR:
        return
    if isinstance(model, GaussianMixture):
        # A ridge is not a penalty on the likelihood: that of scikit-learn may fall too.
        path = np.array(model.lower_bounds_) * n_rows if model.reg_covar == 0.0 else None
    elif "lower_bound_path_" in vars(model):
        path = model.lower_bound_path_
    elif (
        "log_likelihood_path_" in vars(model)
        and model.covariance_prior is None
        and model.weight_prior in (None, 1.0)
        and model.group_shift is None
    ):
        path = model.log_likelihood_path_.sum(axis=1)
    if path is None or len(path) < 2:
        return
    allowed = ROUNDING * np.maximum(np.abs(path).max(), n_rows)
    lost = -np.diff(path).min()
    if lost > allowed:
        yield f"the log-likelihood falls by 10^{np.log10(lost / np.abs(path).max()):.1f} of its magnitude"


def general(message: str) -> str:
    """Return a message without its numbers and names, to count equal reasons together."""
    first = re.sub(r"\[[^\]]*\]|\{[^}]*\}|'[^']*'|-?\b\d[\d.]*(e[-+]?\d+)?|\b(nan|inf)\b", "…", message)
    return re.sub(r"(… ?)+", "… ", first)[:110]


def is_own(error: BaseException) -> bool:
    """Return whether an error is a ValueError that skmix or scikit-learn raised."""
    frames = list(traceback.walk_tb(error.__traceback__))
    module = frames[-1][0].f_globals.get("__name__", "")
    # Errors of Python's built-ins are raised in our frames, too.
    told = not re.match(r"zip\(\)|(not enough|too many) values to unpack|max\(\)|min\(\)", str(error))
    return (
        type(error) in (ValueError, ArgumentError)
        and told
        and module.partition(".")[0] in ("skmix", "sklearn")
    )


def torture(seed: int, loud: bool, number: int) -> Outcome:
    """Make one fit."""
    random = np.random.default_rng([seed, number])
    kind = str(random.choice(list(KINDS), p=list(KINDS.values())))
    table = hostile_table(random, kind)
    settings = hostile_settings(random, kind, table)
    shown = f"{table.X.shape[0]} × {table.X.shape[1]}: {', '.join(table.traits) or 'nothing special'}"
    outcome, reasons, seconds = "clean", [], 0.0
    signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, ENDED)
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = make(kind, settings)
            extra = {} if kind == "gaussian" else {"sample_weight": table.weights}
            model.fit(table.X, table.y, **extra)
            seconds = time.process_time() - begin
            reasons += problems(model, table, Path(folder))
        except Exception as error:
            outcome = "refused" if not seconds and is_own(error) else "failed"
            when = (
                ""
                if outcome == "refused"
                else f"{type(error).__name__} in {'fit' if not seconds else 'use'}: "
            )
            reasons.append(when + general(str(error)))
            if loud:
                traceback.print_exc()
            seconds = seconds or time.process_time() - begin
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    for each in caught:
        if each.category is not ConvergenceWarning and not EXPECTED.search(str(each.message)):
            where = f"{Path(each.filename).name}:{each.lineno}"
            reasons.append(f"{each.category.__name__} at {where}: {general(str(each.message))}")
    if seconds > ALLOWED:
        reasons.append("takes longer than ten seconds")
    if len(reasons) > (outcome == "refused"):
        outcome = "failed"
    return Outcome(
        number, kind, outcome, list(dict.fromkeys(reasons)), round(seconds, 2), shown, repr(settings)
    )


def _end(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {ENDED:.0f} seconds")


def run(numbers: range, seed: int, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes of all fits."""
    one = partial(torture, seed, len(numbers) == 1)
    if jobs == 1:
        with threadpool_limits(1):
            yield from map(one, numbers)
        return
    with ProcessPoolExecutor(jobs, initializer=threadpool_limits, initargs=(1,)) as pool:
        yield from pool.map(one, numbers, chunksize=8)


def main() -> None:
    """Make the fits and print their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=1000, help="number of fits")
    parser.add_argument("--first", type=int, default=0, help="number of the first fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", type=Path, help="JSON file of the counts and of all fits that failed")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.fits)
    console, outcomes = Console(width=150), []
    for each in run(numbers, arguments.seed, arguments.jobs):
        outcomes.append(each)
        if each.outcome == "failed":
            text = f"failed {each.number}, {each.kind}, {each.seconds} s: {'; '.join(each.reasons)}"
            console.print(f"{text}\n    {each.table}\n    {each.settings}", markup=False, highlight=False)
    counts = Counter((each.kind, each.outcome) for each in outcomes)
    refused = Counter(each.reasons[0] for each in outcomes if each.outcome == "refused")
    failed = [each for each in outcomes if each.outcome == "failed"]
    table = Printed(title=f"{len(outcomes)} hostile fits, seed {arguments.seed}")
    for title in ("estimator", "clean", "refused", "failed", "slowest, s"):
        table.add_column(title, justify="left" if title == "estimator" else "right")
    for kind in KINDS:
        own = [each.seconds for each in outcomes if each.kind == kind]
        numbers_of = [str(counts[kind, outcome]) for outcome in ("clean", "refused", "failed")]
        table.add_row(kind, *numbers_of, f"{max(own, default=0.0):.1f}")
    console.print(table)
    for reason, count in refused.most_common():
        console.print(f"refused {count:5}: {reason}", markup=False, highlight=False)
    if failed:
        console.print(
            f"Repeat one: python benchmarks/torture.py --seed {arguments.seed} --fits 1 --first NUMBER"
        )
    if arguments.out is not None:
        results = {
            "seed": arguments.seed,
            "first": arguments.first,
            "fits": len(outcomes),
            "clean": sum(each.outcome == "clean" for each in outcomes),
            "refused": dict(refused.most_common()),
            "failed": [asdict(each) for each in failed],
            "slowest_s": max(each.seconds for each in outcomes),
        }
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
