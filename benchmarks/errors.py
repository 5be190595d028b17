"""Values with errors: fits beside astroML's XDGMM, and ages of zircons with coarser and coarser errors.

    pip install astroML
    python benchmarks/errors.py xdgmm --out benchmarks/results/errors.csv
    python benchmarks/errors.py zircons FOLDER --out benchmarks/results/errors_zircons.csv

Rows of five clusters in two features have errors of 0.1 to 1.5 deviations of a cluster. Both libraries begin
with the same parameters, those that XDGMM draws, and make the same passes in turn in one process: the
likelihoods after them, and the processor time of a pass, are compared. Whole fits have the defaults of each.
A million rows take XDGMM minutes; `--sizes 1000` leaves them out.

The folder has ages of zircon grains of 16 samples, namib_DZ.csv and namib_DZerr.csv of the package provenance
for R, which are not part of this repository. Ages get further errors of known size, and grains that are held
out, as they were measured, judge the fits. `--picture FILE` draws the densities.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recording import parser_of, seconds_of_a_pass, show, with_error
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, SharedKernelMixtureCV

N_KERNELS, N_FEATURES = 5, 2
# Rows of the comparison, the passes of XDGMM that are timed, and whether it makes a whole fit.
SIZES = {1_000: (9, True), 10_000: (5, False), 100_000: (1, False), 1_000_000: (1, False)}
# Further errors of the ages, as shares of them.
SHARES = 0.0, 0.02, 0.05, 0.1, 0.2
N_FOLDS = 5
# Numbers of kernels among which BIC chooses.
TRIED = [2, 3, 4, 5, 6, 8, 10, 12]
MAXIMUM_LIKELIHOOD = {"covariance_prior": None, "variance_floor": 0.0, "n_jobs": 1}


def draw(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, 2) of five clusters, and the standard deviations (n, 2) of their errors."""
    random = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.5], [0.5, 4.0], [4.0, 4.5], [2.0, 2.0]])
    roots = np.linalg.cholesky([[[1.0, c], [c, 1.0]] for c in (0.8, -0.8, 0.0, 0.5, -0.5)])
    cluster = random.integers(0, N_KERNELS, n_rows)
    clean = centres[cluster] + np.einsum(
        "nde,ne->nd", 0.7 * roots[cluster], random.normal(size=(n_rows, N_FEATURES))
    )
    errors = random.uniform(0.1, 1.5, size=clean.shape)
    return clean + errors * random.normal(size=clean.shape), errors


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of a function."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(n_rows: int, n_passes: int, whole: bool) -> dict[str, Any]:
    """Return times and likelihoods of both libraries."""
    from astroML.density_estimation import XDGMM

    X, errors = draw(n_rows)
    matrices = np.square(errors)[..., None] * np.eye(N_FEATURES)
    theirs = XDGMM(N_KERNELS, max_iter=0, random_state=0).fit(X, matrices)
    start = {"means": theirs.mu, "covariances": theirs.V, "weights": theirs.alpha}
    ours = SharedKernelMixture(init=start, tol=0.0, **MAXIMUM_LIKELIHOOD)

    def passes(n: int) -> SharedKernelMixture:
        return ours.set_params(max_iter=n).fit(X, errors=errors)

    def their_pass() -> None:
        theirs._EMstep(X, matrices)
        theirs.logL(X, matrices)

    theirs_took, ours_took = [], []
    for _ in range(n_passes):
        theirs_took.append(seconds(their_pass))
        ours_took.append(seconds_of_a_pass(passes, (1, 21), 1))
    model = passes(n_passes)
    difference = abs(theirs.logL(X, matrices) / n_rows - model.score(X, errors=errors))
    pass_theirs, pass_ours = np.median(theirs_took), np.median(ours_took)
    row = {
        "rows": str(n_rows),
        "XDGMM, ms a pass": f"{1e3 * pass_theirs:.0f}",
        "skmix, ms a pass": f"{1e3 * pass_ours:.2g}" if pass_ours < 0.1 else f"{1e3 * pass_ours:.0f}",
        "times as fast": f"{pass_theirs / pass_ours:.0f}",
        "difference, nats a row": "< 1e-10" if difference < 1e-10 else f"{difference:.0e}",
    }
    theirs, ours = XDGMM(N_KERNELS, random_state=0), SharedKernelMixture(N_KERNELS, n_jobs=1, random_state=0)
    took: dict[str, Any] = {"skmix": seconds(lambda: ours.fit(X, errors=errors))}
    reached: dict[str, Any] = {"skmix": ours.score(X, errors=errors)}
    if whole:
        took["XDGMM"] = seconds(lambda: theirs.fit(X, matrices))
        reached["XDGMM"] = theirs.logL(X, matrices) / n_rows
    for unit, digits, values in (("s a fit", 2, took), ("nats a row", 4, reached)):
        for name in ("XDGMM", "skmix"):
            row[f"{name}, {unit}"] = f"{values[name]:.{digits}f}" if name in values else "–"
    return row


def ages_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return logarithms (n, 1) of ages, and the errors of these, which are relative."""
    ages, errors = (pd.read_csv(folder / f"namib_{name}.csv").stack().dropna() for name in ("DZ", "DZerr"))
    e = (errors.reindex(ages.index) / ages).to_numpy()[:, None]
    return np.log(ages.to_numpy())[:, None], e


def zircons(folder: Path) -> list[dict[str, Any]]:
    """Return the held-out log-densities of fits with and without errors, whose kernels BIC chooses."""
    x, e = ages_of(folder)
    random, rows = np.random.default_rng(0), []
    fold, noise = random.integers(0, N_FOLDS, len(x)), random.normal(size=x.shape)
    for share in SHARES:
        seen, total = x + share * noise, np.hypot(e, share)

        def held_out(numbers: list[int], with_errors: bool, seen: Any = seen, total: Any = total) -> Any:
            """Return log-densities of ages as they were measured, and the numbers of kernels."""
            logs, chosen = np.empty(len(x)), []
            search = SharedKernelMixtureCV(
                SharedKernelMixture(n_init=3),
                n_kernels=numbers,
                covariance_type="full",
                criterion="bic",
                random_state=0,
            )
            for held in range(N_FOLDS):
                train, test = fold != held, fold == held
                search.fit(seen[train], errors=total[train] if with_errors else None)
                logs[test] = search.score_samples(x[test], errors=e[test] if with_errors else None)
                chosen.append(search.best_params_["n_kernels"])
            return logs, f"{min(chosen)} to {max(chosen)}"

        (clean, n_clean), (plain, n_plain) = held_out(TRIED, True), held_out(TRIED, False)
        rows.append(
            {
                "further error": f"{100 * share:.0f} %",
                "with errors, nats a grain": f"{clean.mean():.3f}",
                "without": f"{plain.mean():.3f}",
                "gain": with_error(clean - plain),
                "kernels with errors": n_clean,
                "kernels without": n_plain,
                "gain with ten kernels": with_error(held_out([10], True)[0] - held_out([10], False)[0]),
            }
        )
    return rows


def picture(folder: Path, file: Path) -> None:
    """Draw the density of ages as they were measured, and of ages with further errors of a tenth."""
    from matplotlib.figure import Figure

    x, e = ages_of(folder)
    grid = np.linspace(np.log(200.0), np.log(3500.0), 800)[:, None]
    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    panels, random = figure.subplots(1, 2, sharey=True), np.random.default_rng(0)
    for axes, further, n_kernels in zip(panels, (0.0, 0.1), (8, 4), strict=True):
        seen, total = x + further * random.normal(size=x.shape), np.hypot(e, further)
        axes.hist(
            x[:, 0], np.linspace(*grid[[0, -1], 0], 60), density=True, color="0.88", label="as measured"
        )
        model = SharedKernelMixture(n_kernels, n_init=5, tol=1e-6, max_iter=5000, random_state=0)
        for errors, colour, label in ((None, "#d55e00", "without"), (total, "#0072b2", "with")):
            density = np.exp(model.fit(seen, errors=errors).score_samples(grid))
            axes.plot(grid[:, 0], density, color=colour, label=f"fit {label} errors")
        ticks = np.array([250, 500, 1000, 2000, 3000])
        axes.set_xticks(np.log(ticks), [str(tick) for tick in ticks])
        added = f", and further errors of {further:.0%} added" if further else ""
        axes.set_title(f"errors of {e.mean():.1%}{added}", fontsize=10)
        axes.set(xlabel="age of a grain, million years")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="density of the logarithm")
    panels[1].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=140, metadata={"Software": None})


def main() -> None:
    """Measure, and write a table."""
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=("xdgmm", "zircons"))
    parser.add_argument("folder", type=Path, nargs="?", help="of the ages")
    parser.add_argument("--picture", type=Path, help="file of the picture of the ages")
    parser.add_argument("--sizes", type=int, nargs="+", default=[*SIZES], help="numbers of rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.what == "xdgmm":
        sizes = [1000] if arguments.small else arguments.sizes
        passes = {1000: (1, False)} if arguments.small else SIZES
        show([compare(n_rows, *passes[n_rows]) for n_rows in sizes], arguments.out)
        return
    if arguments.picture:
        picture(arguments.folder, arguments.picture)
    if arguments.out:
        show(zircons(arguments.folder), arguments.out)


if __name__ == "__main__":
    main()
