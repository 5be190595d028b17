"""MNIST with one pipeline: deskewing, components, EM, tuning, averaging. Three settings, on the test images.

    python benchmarks/mnist.py --folder mnist --seeds 0 1 2 --out benchmarks/results/mnist.json

Each seed changes starts and splits. Settings are chosen on training images only: with ``--try``,
10 000 of them, the same for all seeds, replace the test images, and the pipeline gets the other 50 000. The
test images were not used to choose settings, but an earlier version, with similar settings, was measured on
them too. The pipeline holds a share of its images out of the fit, to calibrate probabilities or
(`judge=yes`) to stop tuning. No image is added, and none is altered except by deskewing.

    python benchmarks/mnist.py --folder mnist --try deskew=yes components=40,50 kernels=8,12 --processes 4

runs all combinations of these settings for each ``--try``; the other settings are the defaults of `Recipe`.
Times are wall-clock times with `--threads` threads per process: processes times threads should not exceed
the cores. Averaged models are fitted in parallel, in their own processes of one thread each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from comparison import count_parameters
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss, zero_one_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits

import skmix
from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.data.write import replacing
from skmix.features import deskew

N_CLASSES = 10
N_VALIDATION = 10_000
# Seed of the images by which settings are chosen: they are always the same.
SEED_OF_VALIDATION = 20
STEPS = ("prepare", "fit")


@dataclass(frozen=True)
class Recipe:
    """Settings of the pipeline.

    Attributes
    ----------
    deskew : bool
        Whether images are made upright first.
    components : int
        Number of principal components.
    kernels : int
        Number of kernels for each class; all are shared.
    start : str
        'class', the classifier's own start, or 'separate', from mixtures fitted to each class.
    prior : float
        Pseudo-rows of the covariance prior.
    shrink : bool
        Whether covariances are shrunk towards their mean instead, by an amount learnt from the images.
    max_iter : int
        Largest number of passes of EM.
    tol : float
        EM ends when a pass gains less than this per row.
    trade_off : tuple of float
        Values of λ for tuning, in order.
    steps : int
        Largest number of steps of tuning for each λ.
    held_out : float
        Share of the images held out of the fit.
    judge : bool
        Whether these images stop the tuning. Otherwise it makes all its passes, and they only set the
        temperature.
    members : int
        Number of models, with different starts and splits, whose probabilities are averaged.
    """

    deskew: bool = False
    components: int = 45
    kernels: int = 10
    start: str = "class"
    prior: float = 10.0
    shrink: bool = False
    max_iter: int = 50
    tol: float = 1e-2
    trade_off: tuple[float, ...] = (0.0,)
    steps: int = 80
    held_out: float = 0.1
    judge: bool = True
    members: int = 1


_CHOSEN = Recipe(start="separate", prior=1.0, steps=40, held_out=0.02, judge=False, members=4)
RECIPES = {
    "raw": _CHOSEN,
    "deskewed": replace(_CHOSEN, deskew=True),
    "smallest": replace(
        _CHOSEN, deskew=True, components=22, kernels=1, start="class", prior=10.0, steps=80, members=1
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The results of one recipe with one seed.

    Attributes
    ----------
    recipe : Recipe
        The settings.
    seed : int
        The seed.
    error, log_loss : float
        On the test images, or with ``--try`` on the images that replace them.
    error_before, error_after : float
        On the held-out images, before and after tuning: means over the members.
    kept : bool
        Whether tuned models were kept; if none was better, the numbers are those after EM.
    rounds : int
        Largest number of steps of tuning of a member.
    parameters, parameters_of_components : int
        Number of parameters of all members' classifiers, and of the projection before them.
    seconds : dict of str to float
        Wall-clock time of each step; `fit` is EM, tuning and calibration of all members.
    """

    recipe: Recipe
    seed: int
    error: float
    log_loss: float
    error_before: float
    error_after: float
    kept: bool
    rounds: int
    parameters: int
    parameters_of_components: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class Member:
    """One fitted model, and its numbers for `Outcome`."""

    model: SharedKernelClassifier
    error_before: float
    error_after: float
    kept: bool
    rounds: int


def prior_of(recipe: Recipe) -> dict[str, Any]:
    """Return the settings that regularise covariances."""
    return {"covariance_prior": "auto" if recipe.shrink else recipe.prior}


def start_of(recipe: Recipe, rows: np.ndarray, labels: np.ndarray, seed: int, threads: int) -> Any:
    """Return the `init` of the classifier."""
    if recipe.start == "class":
        return "class"
    parts = [
        SharedKernelMixture(
            recipe.kernels,
            **prior_of(recipe),
            max_iter=recipe.max_iter,
            tol=recipe.tol,
            n_jobs=threads,
            random_state=seed,
        ).fit(rows[labels == label])
        for label in range(N_CLASSES)
    ]
    # A weight of zero would stay zero, and no kernel could be shared.
    weights = np.full((N_CLASSES * recipe.kernels, N_CLASSES), 0.01 / (N_CLASSES * recipe.kernels))
    for label, part in enumerate(parts):
        own = slice(label * recipe.kernels, (label + 1) * recipe.kernels)
        weights[own, label] += 0.99 * part.weights_[:, 0]
    return {
        "means": np.concatenate([part.means_ for part in parts]),
        "covariances": np.concatenate([part.covariances_ for part in parts]),
        "weights": weights,
    }


def fit_member(recipe: Recipe, rows: np.ndarray, labels: np.ndarray, threads: int, seed: int) -> Member:
    """Return a model of rows (N, M) of components, calibrated on held-out rows."""
    fitted, held_out, fitted_labels, held_out_labels = train_test_split(
        rows, labels, test_size=recipe.held_out, stratify=labels, random_state=seed
    )
    with threadpool_limits(threads):
        model = SharedKernelClassifier(
            N_CLASSES * recipe.kernels,
            init=start_of(recipe, fitted, fitted_labels, seed, threads),
            **prior_of(recipe),
            max_iter=recipe.max_iter,
            tol=recipe.tol,
            n_jobs=threads,
            random_state=seed,
        )
        model.fit(fitted, fitted_labels)
        error_before = zero_one_loss(held_out_labels, model.predict(held_out))
        model.tune(
            fitted,
            fitted_labels,
            trade_off=recipe.trade_off,
            validation=(held_out, held_out_labels) if recipe.judge else None,
            max_iter=recipe.steps,
            random_state=seed,
        )
        if not recipe.judge:
            model.calibrate(held_out, held_out_labels)
        error_after = zero_one_loss(held_out_labels, model.predict(held_out))
    tuned: dict[str, Any] = model.tuned_
    rounds = len(tuned["rounds"]) or recipe.steps
    return Member(model, float(error_before), float(error_after), tuned["trade_off"] is not None, rounds)


def fit_members(
    recipe: Recipe, rows: np.ndarray, labels: np.ndarray, threads: int, seed: int
) -> list[Member]:
    """Return all members, with seeds that no other seed uses."""
    processes = min(threads, recipe.members)
    fit = partial(fit_member, recipe, rows, labels, threads // processes)
    seeds = range(recipe.members * seed, recipe.members * (seed + 1))
    if processes == 1:
        return [fit(each) for each in seeds]
    with fresh_processes(processes) as pool:
        return list(pool.map(fit, seeds))


@dataclass(frozen=True, eq=False)
class SplitImages:
    """Images with their labels, in the usual split."""

    train_images: np.ndarray  # (n, height, width)
    train_labels: np.ndarray  # (n,)
    test_images: np.ndarray  # (m, height, width)
    test_labels: np.ndarray  # (m,)


def read_images(folder: Path) -> SplitImages:
    """Read the four IDX files of MNIST, plain or compressed: a magic number, the shape, and bytes."""
    arrays = []
    for part in ("train", "t10k"):
        for content, n_axes in (("images-idx3", 3), ("labels-idx1", 1)):
            (path,) = folder.glob(f"{part}-{content}-ubyte*")
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            shape = np.frombuffer(data, ">u4", n_axes, offset=4)
            values = np.frombuffer(data, np.uint8, offset=4 + 4 * n_axes).reshape(shape)
            arrays.append(values if n_axes == 3 else values.astype(np.int64))
    return SplitImages(*arrays)


def measure(recipe: Recipe, data: SplitImages, seed: int, threads: int) -> Outcome:
    """Return the results of a recipe on the test images of `data`, which may be a validation split."""
    begin = time.perf_counter()
    read = deskew if recipe.deskew else lambda images: images.reshape(len(images), -1).astype(np.float64)
    preparation = make_pipeline(FunctionTransformer(read), PCA(recipe.components, random_state=seed))
    rows, labels = preparation.fit_transform(data.train_images), data.train_labels
    prepared = time.perf_counter()
    members = fit_members(recipe, rows, labels, threads, seed)
    seconds = {"prepare": prepared - begin, "fit": time.perf_counter() - prepared}
    frozen = [(str(number), FrozenEstimator(each.model)) for number, each in enumerate(members)]
    average = VotingClassifier(frozen, voting="soft").fit(rows, labels)
    judged = preparation.transform(data.test_images)
    return Outcome(
        recipe,
        seed,
        float(zero_one_loss(data.test_labels, average.predict(judged))),
        float(log_loss(data.test_labels, average.predict_proba(judged), labels=average.classes_)),
        float(np.mean([each.error_before for each in members])),
        float(np.mean([each.error_after for each in members])),
        all(each.kept for each in members),
        max(each.rounds for each in members),
        sum(count_parameters(each.model) for each in members),
        count_parameters(preparation),
        seconds,
    )


def within_training(data: SplitImages) -> SplitImages:
    """Return the training images, split into training and test images."""
    n_validation = min(N_VALIDATION, len(data.train_labels) // 6)
    kept, judged = train_test_split(
        np.arange(len(data.train_labels)),
        test_size=n_validation,
        stratify=data.train_labels,
        random_state=SEED_OF_VALIDATION,
    )
    images, labels = data.train_images, data.train_labels
    return SplitImages(images[kept], labels[kept], images[judged], labels[judged])


def run(recipe: Recipe, seed: int, arguments: argparse.Namespace) -> Outcome:
    """Measure in a separate process, with its share of the threads."""
    data = read_images(Path(arguments.folder))
    if arguments.rows is not None:
        few = slice(0, arguments.rows)
        data = replace(data, train_images=data.train_images[few], train_labels=data.train_labels[few])
    if arguments.trials:
        data = within_training(data)
    with threadpool_limits(arguments.threads):
        return measure(recipe, data, seed, arguments.threads)


def fresh_processes(number: int) -> ProcessPoolExecutor:
    """Return a pool of spawned processes: forks would inherit the state of BLAS threads."""
    return ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn"))


def run_all(
    wanted: list[tuple[str, int]], recipes: dict[str, Recipe], arguments: argparse.Namespace
) -> Iterator[tuple[str, int, Outcome]]:
    """Yield names, seeds and outcomes, in the order they finish."""
    if arguments.processes == 1:
        for name, seed in wanted:
            yield name, seed, run(recipes[name], seed, arguments)
        return
    with fresh_processes(arguments.processes) as pool:
        jobs = {pool.submit(run, recipes[name], seed, arguments): (name, seed) for name, seed in wanted}
        for job in as_completed(jobs):
            yield *jobs[job], job.result()


def parse(text: str, name: str) -> Any:
    """Return a setting of a recipe from text."""
    kind = type(getattr(Recipe(), name))
    if kind is bool:
        choices = {"yes": True, "no": False}
        if text not in choices:
            raise ValueError(f"{name} is yes or no, got {text!r}.")
        return choices[text]
    if kind is tuple:
        return tuple(float(part) for part in text.split("+"))
    if name == "start" and text not in ("class", "separate"):
        raise ValueError(f"start is class or separate, got {text!r}.")
    if name == "members" and not text.lstrip("0").isdecimal():
        raise ValueError(f"members is a number from 1 on, got {text!r}.")
    return kind(text)


def combinations(settings: list[str]) -> list[Recipe]:
    """Return all recipes of settings such as ``kernels=8,12``; λ = 0.001 and then 0 is ``0.001+0``."""
    names = [field.name for field in fields(Recipe)]
    choices: dict[str, list[Any]] = {}
    for setting in settings:
        name, _, texts = setting.partition("=")
        if name not in names or not texts:
            raise ValueError(
                f"{setting!r} is not NAME=VALUE[,VALUE ...] with a name among {', '.join(names)}."
            )
        choices[name] = [parse(text, name) for text in texts.split(",")]
    return [Recipe(**dict(zip(choices, chosen, strict=True))) for chosen in product(*choices.values())]


def describe(recipe: Recipe) -> str:
    """Return the settings of a recipe that differ from the defaults, after those that are always shown."""
    first = (
        f"{'deskewed' if recipe.deskew else 'raw'}, {recipe.components} components, {recipe.kernels} a class"
    )
    told = ("deskew", "components", "kernels")
    default = asdict(Recipe())
    others = [f"{k}={v}" for k, v in asdict(recipe).items() if k not in told and v != default[k]]
    return ", ".join([first, *others])


def tabulate(outcomes: dict[str, list[Outcome]], title: str) -> Table:
    """Return a table with a line for each recipe: means over seeds, and the error of each seed."""
    table = Table(title=title)
    table.add_column("model")
    for column in ("errors, %", "mean", "log-loss", "parameters", "of PCA", *STEPS, "seconds"):
        table.add_column(column, justify="right")
    for name, several in outcomes.items():
        steps = [np.mean([each.seconds[step] for each in several]) for step in STEPS]
        table.add_row(
            f"{name}: {describe(several[0].recipe)}",
            " ".join(f"{100 * each.error:.2f}" for each in several),
            f"{100 * np.mean([each.error for each in several]):.3f}",
            f"{np.mean([each.log_loss for each in several]):.4f}",
            f"{several[0].parameters}",
            f"{several[0].parameters_of_components}",
            *(f"{step:.0f}" for step in steps),
            f"{sum(steps):.0f}",
        )
    return table


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", required=True, help="folder with the four IDX files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--try", dest="trials", action="append", nargs="+", metavar="NAME=VALUES")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.trials:
        try:
            tried = [recipe for settings in arguments.trials for recipe in combinations(settings)]
        except ValueError as error:
            parser.error(str(error))
        recipes = {f"trial {number}": recipe for number, recipe in enumerate(tried)}
        judged_by = "training images kept for judging"
    else:
        recipes = {name: RECIPES[name] for name in arguments.models}
        judged_by = "the test images"
    console = Console(width=170)
    finished: dict[str, dict[int, Outcome]] = {name: {} for name in recipes}
    wanted = [(name, seed) for seed in arguments.seeds for name in recipes]
    for name, seed, outcome in run_all(wanted, recipes, arguments):
        finished[name][seed] = outcome
        console.print(
            f"{name}, seed {seed}: {describe(outcome.recipe)}: error {100 * outcome.error:.2f} %, "
            f"log-loss {outcome.log_loss:.4f}; held out {100 * outcome.error_before:.2f} %, "
            f"tuned {100 * outcome.error_after:.2f} %{'' if outcome.kept else ' (not kept)'}; "
            f"{outcome.rounds} steps; "
            + ", ".join(f"{step} {seconds:.0f} s" for step, seconds in outcome.seconds.items()),
            soft_wrap=True,
        )
    ordered = {name: [found[seed] for seed in arguments.seeds] for name, found in finished.items()}
    if arguments.trials:
        ordered = dict(sorted(ordered.items(), key=lambda item: np.mean([each.error for each in item[1]])))
    title = f"MNIST, judged by {judged_by}; {arguments.threads} threads, seeds {arguments.seeds}"
    console.print(tabulate(ordered, title))
    if arguments.out is not None:
        results = {
            "judged_by": judged_by,
            "threads": arguments.threads,
            "processes_at_a_time": arguments.processes,
            "rows": arguments.rows,
            "machine": platform.machine(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "skmix": skmix.__version__,
            "outcomes": {name: [asdict(each) for each in several] for name, several in ordered.items()},
        }
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
