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
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray
from recording import read_lines, with_error, write_lines
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
    return divided(rows, n_rows)


def zircons(folder: Path, n_rows: int, draw: int) -> tuple[Array, Array, Array, Array]:
    """Draw logarithms of ages of each sample; the other grains judge."""
    random, table = np.random.default_rng([n_rows, draw]), pd.read_csv(folder / "namib_DZ.csv")
    ages = [random.permutation(np.log(table[name].dropna().to_numpy())) for name in table]
    return divided([of_sample[:, None] for of_sample in ages], n_rows)


def divided(groups: list[Array], n_rows: int) -> tuple[Array, Array, Array, Array]:
    """Return the first rows of each group with its number, to train, and the others, to judge."""
    numbers, parts = np.arange(len(groups)), []
    for part in ([rows[:n_rows] for rows in groups], [rows[n_rows:] for rows in groups]):
        parts += [np.concatenate(part), np.repeat(numbers, [len(rows) for rows in part])]
    return tuple(parts)


def one_for_all(X: Array, y: Array, size: int) -> Any:
    """Fit one mixture, which ignores the group of a row."""
    model = SharedKernelMixture(size, n_jobs=1, random_state=0).fit(X)
    return lambda Z, z: model.score_samples(Z)


def shared(settings: Record, X: Array, y: Array, size: int) -> Any:
    """Fit groups that share kernels."""
    return SharedKernelMixture(size, **settings, n_jobs=1, random_state=0).fit(X, y).score_samples


def by_group(fit: Callable[[Array], Any], X: Array, y: Array) -> Any:
    """Fit a density to each group."""
    densities = {group: fit(X[y == group]) for group in np.unique(y)}

    def score(Z: Array, z: Array) -> Array:
        logs = np.empty(len(Z))
        for group, density in densities.items():
            logs[z == group] = density(Z[z == group])
        return logs

    return score


def apart(X: Array, y: Array, size: int) -> Any:
    """Fit a mixture to each group."""

    def fit(rows: Array) -> Any:
        return SharedKernelMixture(min(size, len(rows)), n_jobs=1, random_state=0).fit(rows).score_samples

    return by_group(fit, X, y)


def kernel_density(X: Array, y: Array, bandwidth: float) -> Any:
    """Estimate a kernel density for each group, with a multiple of Scott's bandwidth."""

    def fit(rows: Array) -> Any:
        density = gaussian_kde(rows.T, bandwidth * len(rows) ** (-1.0 / (rows.shape[1] + 4)))
        return lambda Z: density.logpdf(Z.T)

    return by_group(fit, X, y)


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


def vowels(folder: Path, n_each: int, draw: int) -> tuple[Any, Array]:
    """Return the data, and which training frames are of the utterances drawn from each speaker."""
    data = np.load(folder / "japanese_vowels.npz")
    random, speakers = np.random.default_rng([n_each, draw]), data["train_speaker"]
    drawn = [random.permutation(np.flatnonzero(speakers == j))[:n_each] for j in np.unique(speakers)]
    return data, np.isin(data["train_utterance"], np.concatenate(drawn))


def compare_speakers(folder: Path, n_each: int, method: str, draw: int) -> list[Record]:
    """Fit a method to some utterances of each speaker; the utterances of the test set judge."""
    data, rows = vowels(folder, n_each, draw)
    X, bags = data["train_frames"][rows], data["train_utterance"][rows]
    y, test, of_test = data["train_speaker"][bags], data["test_frames"], data["test_utterance"]
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
    table = pd.read_csv(folder / f"{name}.csv.gz", keep_default_na=False, dtype=str)
    labels = table.pop("compartment").to_numpy(dtype=str)
    X = table.replace("", "nan").to_numpy(dtype=float)
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
    data, fit = vowels(folder, n_each, draw)
    held, of_row = ~fit, data["train_utterance"]
    X, y = data["train_frames"], data["train_speaker"][of_row]
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
    load = partial(seaflow, folder, 1)
    for n_rows, draw in product((200, 50), range(draws)):
        for methods in ([ONE], [FREE], [PULLED], [FREE, FREE_SHIFTED], [PULLED, SHIFTED], [APART], [KDE]):
            every.append(partial(_last, "SeaFlow", load, n_rows, draw, SIZES, methods))
    load = partial(seaflow, folder, 0)
    for n_rows, draw, method in product((500, 200, 100, 50, 20, 10), range(3), (FREE, PULLED)):
        if n_rows < 500 or draw == 0:
            name = "SeaFlow, choice hours"
            every.append(partial(_last, name, load, n_rows, draw, (10, 20, 30), [method]))
    methods = [SEARCH, *SHARED, APART, FOREST, BOOSTING, SVM]
    for n_each, draw, method in product((30, 5, 2), range(draws), methods):
        every.append(partial(compare_speakers, folder, n_each, method, draw))
    for n_each, draw in product((2, 5, 15), range(draws)):
        every.append(partial(calibration_of_speakers, folder, n_each, draw))
    methods = [SEARCH, "shared, search", "kernels of each class, search", "shared, unlabelled rows too"]
    methods += [FOREST, BOOSTING, SVM]
    for name, draw, method in product(("dunkley2006", "tan2009r1"), range(draws), methods):
        every.append(partial(compare_organelles, folder, name, method, draw))
    load, sizes = partial(zircons, folder), (2, 3, 5, 8, 12, 20)
    for n_rows, draw in product((50, 20), range(draws)):
        every.append(partial(compare_densities, "zircon ages", load, n_rows, draw, sizes, densities))
    return every


def _last(*arguments: Any) -> list[Record]:
    return compare_densities(*arguments)[-1:]


def run(task: Task) -> list[Record]:
    """Measure one task."""
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return task()


def values_of(frame: pd.DataFrame, *key: str) -> pd.Series:
    """Return the values of a method on so many rows of a data set, by draw."""
    chosen = (frame[["data", "rows", "method"]] == list(key)).all(axis=1)
    return frame[chosen].drop_duplicates("draw", keep="last").set_index("draw")["value"]


def write_table(path: Path, frame: pd.DataFrame, names: list[str], baseline: str) -> None:
    """Write a line for each method: its mean, and its gain over the baseline in the same draws."""
    frame, lines = frame[frame["data"].isin(names)], []
    for name, rows, method in frame[["data", "rows", "method"]].drop_duplicates().to_numpy():
        values = values_of(frame, name, rows, method)
        gain = values - values_of(frame, name, rows, baseline)
        line = {"data": name, "training rows": rows, "method": method, "mean": with_error(values)}
        lines.append(line | {f"beside {baseline}": "–" if method == baseline else with_error(gain)})
    lines.sort(key=lambda line: (names.index(line["data"]), int(line["training rows"].split()[0])))
    pd.DataFrame(lines).to_csv(path, index=False, lineterminator="\n")


def write_tables(folder: Path, frame: pd.DataFrame) -> None:
    """Write the tables of the page."""
    measures = sorted({name for name in frame["data"] if name.startswith("vowels,")})
    # There is one draw of 500 rows, which has no standard error.
    several = frame[frame["rows"] != "500"]
    for name, data, baseline in (
        ("densities", ["SeaFlow", "zircon ages"], ONE),
        ("choice", ["SeaFlow, choice hours"], FREE),
        ("bags", ["vowels"], FREE),
        ("calibration", measures, "sum of rows"),
        ("organelles", ["dunkley2006", "tan2009r1"], SEARCH),
    ):
        write_table(folder / f"sharing_real_{name}.csv", several, data, baseline)


def draw(folder: Path, frame: pd.DataFrame) -> None:
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
            values = values_of(frame, name, rows, method)
            mean, error = values.mean(), values.sem()
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
        frame = pd.DataFrame(read_lines(of_draws)).astype({"rows": str})
        write_tables(arguments.out, frame)
        draw(arguments.images, frame)
        return
    every = [task for task in tasks(arguments.folder, arguments.draws) if arguments.only in repr(task)]
    done = Parallel(arguments.processes, return_as="generator_unordered", verbose=1)(
        delayed(run)(task) for task in every
    )
    for finished in done:
        records += finished
        # What a time limit ends is not lost.
        write_lines(of_draws, records, ("data", "rows", "method"))


if __name__ == "__main__":
    main()
