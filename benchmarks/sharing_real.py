"""Real data whose groups are mixtures of the same kernels: densities, bags of rows, and organelles.

    python benchmarks/sharing_real.py --folder FOLDER --processes 16

The folder has mgl1704.npz (SeaFlow), namib_DZ.csv, japanese_vowels.npz, tan2009r1.csv.gz and
dunkley2006.csv.gz; docs/evidence/sharing_real.md says where they are from. Results of all draws go into
benchmarks/results/sharing_real_draws.jsonl, means into the tables beside it; ``--draw`` makes these and
the picture again. Hours 0, 3, 6, … of SeaFlow are for choices, hours 1, 4, 7, … judge. Ten draws of the rows
take two minutes on 16 cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import gaussian_kde
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture
from skmix.metrics import calibration_error

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ONE, APART, KDE = "one density for all", "a mixture for each", "kernel density for each"
FREE, PULLED = "shared, free weights", "shared, hierarchical weights"
SHIFTED, FREE_SHIFTED = "shared, hierarchical, shifts", "shared, free, shifts"
SEARCH = "search"
FOREST, BOOSTING, SVM = "random forest", "gradient boosting", "RBF SVM"
SHARED: dict[str, dict[str, Any]] = {
    FREE: {"weight_prior": None},
    PULLED: {"weight_prior": "hierarchical"},
    FREE_SHIFTED: {"weight_prior": None, "group_shift": "auto"},
    SHIFTED: {"weight_prior": "hierarchical", "group_shift": "auto"},
}
SIZES, SIZES_APART = (5, 10, 15, 20, 30, 45), (1, 2, 3, 5)
BANDWIDTHS = (0.5, 0.7, 1.0, 1.4)
DRAWS = 10
# Share of the training rows of each group that chooses numbers of kernels, and rows of an hour that judge.
HELD, JUDGING = 0.2, 1000

Array = NDArray[Any]
Record = dict[str, Any]
Task = Callable[[], list[Record]]


# ---------------------------------------------------------------- densities


def seaflow(folder: Path, first: int, n_rows: int, draw: int) -> tuple[Array, Array, Array, Array]:
    """Draw rows of every third hour, to train and to judge, uniform within their bins."""
    cruise = np.load(folder / "mgl1704.npz")
    random = np.random.default_rng([first, n_rows, draw])
    bins, counts, hours = cruise["bins"], cruise["counts"], cruise["hour"]
    rows: list[Array] = []
    for hour in range(first, len(cruise["time"]), 3):
        of_hour = np.flatnonzero(hours == hour)
        share = counts[of_hour] / counts[of_hour].sum()
        drawn = bins[random.choice(of_hour, n_rows + JUDGING, p=share)]
        jittered = drawn + random.uniform(-0.5, 0.5, drawn.shape)
        rows.append(cruise["origin"] + jittered * cruise["step"])
    groups = np.arange(len(rows))
    return (
        np.concatenate([each[:n_rows] for each in rows]),
        np.repeat(groups, n_rows),
        np.concatenate([each[n_rows:] for each in rows]),
        np.repeat(groups, JUDGING),
    )


def zircons(folder: Path, n_rows: int, draw: int) -> tuple[Array, Array, Array, Array]:
    """Draw logarithms of ages of each sample; the other grains judge."""
    random, samples = np.random.default_rng([n_rows, draw]), []
    with open(folder / "namib_DZ.csv") as file:
        table = list(csv.DictReader(file))
    for name in table[0]:
        ages = np.log([float(row[name]) for row in table if row[name] not in ("", "NA")])
        samples.append(random.permutation(ages)[:, None])
    groups = np.arange(len(samples))
    return (
        np.concatenate([ages[:n_rows] for ages in samples]),
        np.repeat(groups, [len(ages[:n_rows]) for ages in samples]),
        np.concatenate([ages[n_rows:] for ages in samples]),
        np.repeat(groups, [len(ages[n_rows:]) for ages in samples]),
    )


def one_for_all(X: Array, y: Array, size: int) -> Any:
    """Fit one mixture, which ignores the group of a row."""
    model = SharedKernelMixture(size, n_jobs=1, random_state=0).fit(X)
    return lambda Z, z: model.score_samples(Z)


def shared(settings: Record, X: Array, y: Array, size: int) -> Any:
    """Fit groups that share kernels."""
    return SharedKernelMixture(size, **settings, n_jobs=1, random_state=0).fit(X, y).score_samples


def _by_group(models: dict[Any, Any], Z: Array, z: Array) -> Array:
    logs = np.empty(len(Z))
    for group, score in models.items():
        logs[z == group] = score(Z[z == group])
    return logs


def apart(X: Array, y: Array, size: int) -> Any:
    """Fit a mixture to each group."""
    fits = {
        group: SharedKernelMixture(min(size, (y == group).sum()), n_jobs=1, random_state=0).fit(X[y == group])
        for group in np.unique(y)
    }
    return partial(_by_group, {group: fit.score_samples for group, fit in fits.items()})


def kernel_density(X: Array, y: Array, bandwidth: float) -> Any:
    """Estimate a kernel density for each group, with a multiple of Scott's bandwidth."""
    models = {}
    for group in np.unique(y):
        rows = X[y == group].T
        factor = bandwidth * rows.shape[1] ** (-1.0 / (rows.shape[0] + 4))
        models[group] = partial(_log_density, gaussian_kde(rows, factor))
    return partial(_by_group, models)


def _log_density(kde: gaussian_kde, Z: Array) -> Array:
    return kde.logpdf(Z.T)


def part_of_each(y: Array, draw: int) -> Array:
    """Choose a share of the rows (n,) of each group."""
    random, chosen = np.random.default_rng(draw), np.zeros(len(y), dtype=bool)
    for group in np.unique(y):
        rows = np.flatnonzero(y == group)
        chosen[random.permutation(rows)[: max(1, round(HELD * len(rows)))]] = True
    return chosen


def compare_densities(
    name: str, load: Callable[..., Any], n_rows: int, draw: int, sizes: Iterable[int], methods: list[str]
) -> list[Record]:
    """Fit all methods to a draw of rows; the mean log-density of other rows judges."""
    X, y, Z, z = load(n_rows, draw)
    held = part_of_each(y, draw)
    fitters: dict[str, tuple[Any, Iterable[float]]] = {
        ONE: (one_for_all, sizes),
        **{method: (partial(shared, settings), sizes) for method, settings in SHARED.items()},
        APART: (apart, SIZES_APART),
        KDE: (kernel_density, BANDWIDTHS),
    }
    records, chosen = [], {}
    for method in methods:
        fit, tried = fitters[method]
        # Shifts are chosen by held-out rows inside the fit; the number of kernels is that without them.
        without = {SHIFTED: PULLED, FREE_SHIFTED: FREE}.get(method)
        if without is None:
            scores = {size: fit(X[~held], y[~held], size)(X[held], y[held]).mean() for size in tried}
            chosen[method] = max(scores, key=scores.__getitem__)
        size = chosen[without or method]
        value = float(fit(X, y, size)(Z, z).mean())
        records.append(record(name, n_rows, method, draw, value, size))
    return records


def record(name: str, n_rows: Any, method: str, draw: int, value: float, size: Any = "") -> Record:
    """Return a result as a line of the table of all draws."""
    return {"data": name, "rows": n_rows, "method": method, "draw": draw, "value": value, "size": size}


# ---------------------------------------------------------------- bags


def competitors(n_rows: int) -> dict[str, Any]:
    """Return classifiers of rows with settings from usual grids."""
    svm = make_pipeline(StandardScaler(), SVC(probability=True, random_state=0))
    grid = {"svc__C": [1.0, 10.0, 100.0], "svc__gamma": ["scale", 0.02, 0.3]}
    return {
        FOREST: RandomForestClassifier(500, min_samples_leaf=2, n_jobs=1, random_state=0),
        BOOSTING: HistGradientBoostingClassifier(random_state=0),
        SVM: GridSearchCV(svm, grid, cv=StratifiedKFold(3, shuffle=True, random_state=0)),
    }


def averaged(logs: Array, bags: Array) -> Array:
    """Return the mean log-probabilities (B, L) of the rows (n, L) of each bag."""
    return np.array([logs[bags == bag].mean(axis=0) for bag in np.unique(bags)])


def fit_speakers(settings: Record, size: int, kind: str, X: Array, y: Array, seed: int) -> Any:
    """Fit speakers that share kernels, as a classifier."""
    mixture = SharedKernelMixture(size, covariance_type=kind, **settings, n_jobs=1, random_state=seed)
    return SharedKernelClassifier.from_parameters(mixture.fit(X, y))


def chosen_speakers(settings: Record, X: Array, y: Array, bags: Array, draw: int) -> tuple[Any, Any]:
    """Choose kernels by the calibrated log-loss of held-out utterances, in two or three folds."""
    ids = np.unique(bags)
    speaker = np.array([y[bags == bag][0] for bag in ids])
    n_folds = min(3, int(np.bincount(speaker)[speaker.min() :].min()))
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=draw).split(ids, speaker)
    held_out = [np.isin(bags, ids[held]) for _, held in folds]
    scores: dict[Any, float] = {}
    for kind in ("full", "tied"):
        for size in (16, 32, 64):
            losses = []
            for held in held_out:
                model = fit_speakers(settings, size, kind, X[~held], y[~held], draw)
                model.calibrate(X[held], y[held], bags=bags[held])
                probabilities = model.predict_bags_proba(X[held], bags[held])
                codes = np.searchsorted(model.classes_, speaker[np.isin(ids, bags[held])])
                losses.append(-np.log(probabilities[np.arange(len(codes)), codes]).mean())
            scores[size, kind] = float(np.mean(losses))
    best = min(scores, key=scores.__getitem__)
    return fit_speakers(settings, *best, X, y, draw), best


def compare_speakers(folder: Path, n_each: int, method: str, draw: int) -> list[Record]:
    """Fit a method to some utterances of each speaker; the utterances of the test set judge."""
    data = np.load(folder / "japanese_vowels.npz")
    random = np.random.default_rng([n_each, draw])
    speakers = data["train_speaker"]
    chosen = [random.permutation(np.flatnonzero(speakers == j))[:n_each] for j in np.unique(speakers)]
    rows = np.isin(data["train_utterance"], np.concatenate(chosen))
    X, bags = data["train_frames"][rows], data["train_utterance"][rows]
    y, test, of_test = speakers[bags], data["test_frames"], data["test_utterance"]
    right, size = data["test_speaker"], ""
    if method in SHARED:
        model, size = chosen_speakers(SHARED[method], X, y, bags, draw)
        predicted, size = model.predict_bags(test, of_test), f"{size[0]} {size[1]}"
    elif method == SEARCH:
        model = SharedKernelClassifierCV(n_jobs=1, random_state=draw).fit(X, y, groups=bags)
        predicted = model.predict_bags(test, of_test)
    elif method == APART:
        model = SharedKernelClassifierCV(
            kernels="own", n_kernels=[9, 18, 27, 45], tune=False, n_members=1, n_jobs=1, random_state=draw
        ).fit(X, y, groups=bags)
        predicted, size = model.predict_bags(test, of_test), model.best_params_["n_kernels"]
    else:
        model = competitors(len(X))[method].fit(X, y)
        logs = np.log(np.maximum(model.predict_proba(test), 1e-6))
        predicted = model.classes_[averaged(logs, of_test).argmax(axis=1)]
    accuracy = float((predicted == right).mean())
    return [record("vowels", n_each, method, draw, accuracy, size)]


def compare_organelles(folder: Path, name: str, method: str, draw: int) -> list[Record]:
    """Fit a method to four fifths of the markers; macro F1 on the others judges."""
    import gzip

    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        table = list(csv.DictReader(file))
    labels = np.array([row.pop("compartment") for row in table])
    X = np.array([[float(value or "nan") for value in row.values()] for row in table])
    markers = np.flatnonzero(labels != "")
    folds = StratifiedKFold(5, shuffle=True, random_state=draw // 5)
    train, test = list(folds.split(markers, labels[markers]))[draw % 5]
    train, test = markers[train], markers[test]
    if method in competitors(0):
        model = competitors(len(train))[method].fit(X[train], labels[train])
    elif method == "shared, unlabelled rows too":
        rest = np.setdiff1d(np.arange(len(X)), test)
        y = labels.astype(object)
        y[np.setdiff1d(rest, train)] = None
        model = SharedKernelClassifier(n_jobs=1, random_state=draw).fit(X[rest], y[rest])
    else:
        kernels = {"shared, search": "shared", "kernels of each class, search": "own", SEARCH: "auto"}[method]
        model = SharedKernelClassifierCV(kernels=kernels, n_jobs=1, random_state=draw)
        model.fit(X[train], labels[train])
    score = f1_score(labels[test], model.predict(X[test]), average="macro")
    return [record(name, "80 %", method, draw, float(score))]


# ---------------------------------------------------------------- calibration and verification


def calibration_of_speakers(folder: Path, n_each: int, draw: int) -> list[Record]:
    """Measure probabilities of utterances as sums and calibrated, and the equal-error rate of claims."""
    data = np.load(folder / "japanese_vowels.npz")
    random = np.random.default_rng([n_each, draw])
    speakers, of_row = data["train_speaker"], data["train_utterance"]
    chosen = [random.permutation(np.flatnonzero(speakers == j))[:n_each] for j in np.unique(speakers)]
    fit = np.isin(of_row, np.concatenate(chosen))
    held = ~fit
    X, y = data["train_frames"], speakers[of_row]
    model = fit_speakers(SHARED[FREE_SHIFTED], 32, "tied", X[fit], y[fit], draw)
    test, of_test, right = data["test_frames"], data["test_utterance"], data["test_speaker"]
    codes = np.searchsorted(model.classes_, right)
    records = []
    for state in ("sum of rows", "calibrated"):
        if state == "calibrated":
            model.calibrate(X[held], y[held], bags=of_row[held])
        probabilities = model.predict_bags_proba(test, of_test)
        claims = np.array([model.verify(test, label, of_test) for label in model.classes_]).T
        own = np.arange(len(model.classes_)) == codes[:, None]
        loss = -np.log(np.maximum(probabilities[own], 1e-300)).mean()
        for name, value in {
            "confidence": probabilities.max(axis=1).mean(),
            "accuracy": (probabilities.argmax(axis=1) == codes).mean(),
            "calibration error": calibration_error(probabilities, codes),
            "log-loss": loss,
            "equal-error rate": equal_error_rate(claims[own], claims[~own]),
        }.items():
            records.append(record(f"vowels, {name}", n_each, state, draw, float(value)))
    return records


def equal_error_rate(true: Array, false: Array) -> float:
    """Return the error rate at which as many true claims are refused as false ones accepted."""
    thresholds = np.sort(np.concatenate([true, false]))
    missed = np.searchsorted(np.sort(true), thresholds) / len(true)
    accepted = 1.0 - np.searchsorted(np.sort(false), thresholds) / len(false)
    place = np.argmin(np.abs(missed - accepted))
    return float((missed[place] + accepted[place]) / 2.0)


# ---------------------------------------------------------------- all of it


def tasks(folder: Path, draws: int) -> list[Task]:
    """Return what to measure, the longest first."""
    every: list[Task] = []
    densities = [ONE, FREE, PULLED, FREE_SHIFTED, SHIFTED, APART, KDE]
    for n_rows in (200, 50):
        load = partial(seaflow, folder, 1)
        for draw in range(draws):
            for methods in ([ONE], [FREE], [PULLED], [FREE, FREE_SHIFTED], [PULLED, SHIFTED], [APART], [KDE]):
                every.append(partial(_last, "SeaFlow", load, n_rows, draw, SIZES, methods))
    for n_rows in (500, 200, 100, 50, 20, 10):
        load = partial(seaflow, folder, 0)
        for draw in range(3):
            for method in (FREE, PULLED):
                if n_rows < 500 or draw == 0:
                    name = "SeaFlow, choice hours"
                    every.append(partial(_last, name, load, n_rows, draw, (10, 20, 30), [method]))
    for n_each in (30, 5, 2):
        for draw in range(draws):
            for method in (SEARCH, *SHARED, APART, FOREST, BOOSTING, SVM):
                every.append(partial(compare_speakers, folder, n_each, method, draw))
    for n_each in (2, 5, 15):
        every += [partial(calibration_of_speakers, folder, n_each, draw) for draw in range(draws)]
    for name in ("dunkley2006", "tan2009r1"):
        for draw in range(draws):
            for method in (
                *(SEARCH, "shared, search", "kernels of each class, search", "shared, unlabelled rows too"),
                *(FOREST, BOOSTING, SVM),
            ):
                every.append(partial(compare_organelles, folder, name, method, draw))
    for n_rows in (50, 20):
        for draw in range(draws):
            load, sizes = partial(zircons, folder), (2, 3, 5, 8, 12, 20)
            every.append(partial(compare_densities, "zircon ages", load, n_rows, draw, sizes, densities))
    return every


def _last(name: str, load: Any, n_rows: int, draw: int, sizes: Any, methods: list[str]) -> list[Record]:
    return compare_densities(name, load, n_rows, draw, sizes, methods)[-1:]


def run(task: Task) -> list[Record]:
    """Measure one task."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return task()


def summary(records: list[Record], names: Iterable[str], baseline: str) -> list[Record]:
    """Return a line for each method: its mean and its gain over the baseline in the same draws."""
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in records:
        key = line["data"], str(line["rows"]), line["method"]
        values.setdefault(key, {})[str(line["draw"])] = float(line["value"])
    lines = []
    for (name, rows, method), draws in values.items():
        if name in names:
            others = values[name, rows, baseline]
            gains = [value - others[draw] for draw, value in draws.items()]
            lines.append(
                {
                    "data": name,
                    "training rows": rows,
                    "method": method,
                    "mean": with_error(list(draws.values())),
                    f"beside {baseline}": "–" if method == baseline else with_error(gains),
                }
            )
    return sorted(
        lines, key=lambda line: (list(names).index(line["data"]), int(line["training rows"].split()[0]))
    )


def with_error(values: list[float]) -> str:
    """Return the mean of values with its standard error."""
    error = np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.3f} ± {error:.3f}"


def write_table(path: Path, rows: list[Record]) -> None:
    """Write rows with the same keys."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


def write_tables(folder: Path, records: list[Record]) -> None:
    """Write the tables of the page."""
    densities = summary(records, ["SeaFlow", "zircon ages"], ONE)
    write_table(folder / "sharing_real_densities.csv", densities)
    # There is one draw of 500 rows, which has no standard error.
    several = [line for line in records if str(line["rows"]) != "500"]
    choice = summary(several, ["SeaFlow, choice hours"], FREE)
    write_table(folder / "sharing_real_choice.csv", choice)
    write_table(folder / "sharing_real_bags.csv", summary(records, ["vowels"], FREE))
    measures = sorted({line["data"] for line in records if line["data"].startswith("vowels,")})
    write_table(folder / "sharing_real_calibration.csv", summary(records, measures, "sum of rows"))
    write_table(
        folder / "sharing_real_organelles.csv", summary(records, ["dunkley2006", "tan2009r1"], SEARCH)
    )


def draw(folder: Path, records: list[Record]) -> None:
    """Draw log-densities of SeaFlow and zircons, and accuracies of utterances."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    titles = {
        ("SeaFlow", "50"): "Hours of a cruise, 50 cells each",
        ("zircon ages", "50"): "Zircon samples, 50 ages each",
        ("vowels", "5"): "Speakers, 5 utterances each",
    }
    names = {
        ONE: "one density",
        APART: "a mixture each",
        KDE: "kernel density each",
        SHIFTED: "shared kernels",
    }
    names_of_bags = {SVM: "SVM", FOREST: "forest", BOOSTING: "boosting", FREE_SHIFTED: "shared kernels"}
    for axis, ((name, rows), title) in zip(axes, titles.items(), strict=True):
        bars = names_of_bags if name == "vowels" else names
        for place, (method, label) in enumerate(bars.items()):
            own = (name, rows, method)
            values = [
                float(line["value"])
                for line in records
                if (line["data"], str(line["rows"]), line["method"]) == own
            ]
            mean, error = np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5
            colour = "#c44e52" if label == "shared kernels" else "#8c8c8c"
            axis.errorbar(mean, place, xerr=2 * error, fmt="o", color=colour, capsize=3)
            axis.annotate(f"{mean:.2f}", (mean, place), (0, 7), textcoords="offset points", ha="center")
        axis.set_yticks(range(len(bars)), bars.values())
        axis.set_ylim(-0.6, len(bars) - 0.3)
        axis.margins(x=0.15)
        axis.set_title(title, fontsize=10)
        measure = (
            "share of utterances recognised" if name == "vowels" else "log-density of new rows, nats a row"
        )
        axis.set_xlabel(measure)
    figure.savefig(folder / "sharing-real.png", dpi=110)


def main() -> None:
    """Measure, and write tables and pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("."), help="folder of the data")
    parser.add_argument("--draws", type=int, default=DRAWS, help="draws of the rows")
    parser.add_argument("--processes", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--only", default="", help="measure only tasks with this word")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the tables")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--draw", action="store_true", help="measure nothing; show what has been measured")
    arguments = parser.parse_args()
    of_draws, records = arguments.out / "sharing_real_draws.jsonl", []
    if arguments.draw:
        records = [json.loads(line) for line in of_draws.read_text().splitlines()]
        write_tables(arguments.out, records)
        draw(arguments.images, records)
        return
    every = [task for task in tasks(arguments.folder, arguments.draws) if arguments.only in repr(task)]
    done = Parallel(arguments.processes, return_as="generator_unordered", verbose=1)(
        delayed(run)(task) for task in every
    )
    for finished in done:
        records += finished
        # What a time limit ends is not lost.
        of_draws.write_text("".join(f"{json.dumps(line)}\n" for line in records))


if __name__ == "__main__":
    main()
