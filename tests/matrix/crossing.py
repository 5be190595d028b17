"""The table of features that fits cross, what is refused, and a covering array of all pairs or triples."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

Cell = dict[str, Any]

EMPTY = ("first", "middle", "last")

# The first value of each feature is its default.
FEATURES: dict[str, list[Any]] = {
    "model": ["mixture", "classifier", "sets"],  # sets: a classifier with two sets of features
    "covariance": ["full", "tied", "diag", "spherical"],
    "tail": ["none", "t", "t4"],  # t: degrees are learnt
    "covariance_prior": ["none", "number", "auto"],
    "weight_prior": ["none", "number", "hierarchical"],
    "shift": [False, True],
    "freeze": ["none", "kernels", "weights"],
    "inference": ["em", "variational"],
    "stopping": ["total", "per-class"],
    "labels": ["classes", "none", "unlabelled"],
    # Weights are small whole numbers, or these times 0.001 or 100.
    "weighted": [False, True, "small", "large"],
    # Which kernel has no weight in any class, and so no rows.
    "empty": ["none", *EMPTY],
    "gaps": [False, True],
    "errors": [False, True],
    "rows": ["array", "float32", "frame", "npy", "parquet", "dask", "tensor", "single", "streamed"],
    "starts": ["one", "three"],
    "after": ["nothing", "tune", "stream", "add", "impute", "export", "bags"],
}
TAILS = ("t", "t4")
DEVICES = ("single", "streamed")  # rows that are sent; tensors are there already
FILES = ("npy", "parquet", "dask", "streamed")

Value = tuple[str, Any]
Values = tuple[str, Any]  # of one feature: a value, or a tuple of several

# Values that are refused together, and what the error says.
_REFUSED: list[tuple[*tuple[Values, ...], str]] = [
    (("tail", "t"), ("freeze", "kernels"), "give degrees"),
    (("tail", TAILS), ("inference", "variational"), "inference"),
    (("tail", TAILS), ("rows", ("tensor", *DEVICES)), "device"),
    (("inference", "variational"), ("freeze", ("kernels", "weights")), "freeze"),
    (("inference", "variational"), ("stopping", "per-class"), "stopping="),
    (("weight_prior", "hierarchical"), ("inference", "variational"), "inference"),
    (("weight_prior", "hierarchical"), ("freeze", "weights"), "freeze"),
    (("weight_prior", "hierarchical"), ("stopping", "per-class"), "stopping="),
    (("shift", True), ("inference", "variational"), "variational"),
    (("shift", True), ("tail", TAILS), "group_shift=.* cannot be combined with tail="),
    (("shift", True), ("stopping", "per-class"), "stopping="),
    (("shift", True), ("labels", "unlabelled"), "every row needs its group"),
    (("shift", True), ("rows", "streamed"), "streamed to a device"),
    (("after", "stream"), ("inference", "variational"), "cannot be combined with inference='variational'"),
    (("after", "stream"), ("tail", TAILS), "t kernels"),
    (("after", "stream"), ("shift", True), "cannot be combined with group_shift"),
    (("after", "tune"), ("tail", TAILS), "t kernels"),
    (("after", "tune"), ("model", "sets"), "tune cannot be combined with 2 feature sets"),
    (("after", "tune"), ("gaps", True), "without missing values"),
    (("after", "tune"), ("errors", True), "tune cannot be combined with errors"),
    (("tail", TAILS), ("errors", True), "errors cannot be combined with tail"),
    (("rows", "dask"), ("errors", True), "errors cannot be combined with Dask"),
    (("after", "tune"), ("labels", "unlabelled"), "rows have no label in y"),
    (("after", ("tune", "stream", "add")), ("rows", "dask"), "needs rows in memory"),
    (("after", "export"), ("shift", True), "differ in their means"),
    (("model", "sets"), ("labels", "unlabelled"), "cannot be combined with 2 feature sets"),
]
# Values that mean nothing together: a parameter or method is not there, or a default has nothing to act on.
_MEANINGLESS: list[tuple[Values, ...]] = [
    (("model", ("classifier", "sets")), ("labels", "none")),
    (("model", ("classifier", "sets")), ("shift", True)),
    (("model", "mixture"), ("after", ("tune", "bags"))),
    # A variational posterior has no weight of zero: the kernel may get rows after a pass, or is removed.
    (("inference", "variational"), ("empty", EMPTY)),
    (("starts", "three"), ("empty", EMPTY)),
    # Kernels that explain less than one row are removed: all but one, if the rows count so little.
    (("inference", "variational"), ("weighted", "small")),
    # `freeze` keeps what a given start says, and of given starts there is one.
    (("starts", "three"), ("freeze", ("kernels", "weights"))),
    (("after", ("tune", "stream", "add", "impute", "export", "bags")), ("starts", "three")),
    (("after", "impute"), ("gaps", False)),
    # Adaptation of a new group has another rule, tested with group shifts.
    (("after", "add"), ("shift", True)),
    (("after", "add"), ("labels", "none")),
]


def _expanded(*together: Values) -> Iterator[frozenset[Value]]:
    for values in product(*(own if isinstance(own, tuple) else (own,) for _, own in together)):
        yield frozenset(zip((name for name, _ in together), values, strict=True))


REFUSED: dict[frozenset[Value], str] = {
    values: words for *together, words in _REFUSED for values in _expanded(*together)
}
EXCLUDED = REFUSED.keys() | {values for together in _MEANINGLESS for values in _expanded(*together)}


def is_allowed(cell: Cell) -> bool:
    """Return whether no values of a cell, which may be incomplete, are excluded together."""
    return not any(frozenset(pair) in EXCLUDED for pair in combinations(cell.items(), 2))


def default_cell() -> Cell:
    """Return the cell of all defaults."""
    return {name: values[0] for name, values in FEATURES.items()}


def covering(strength: int = 2, seed: int = 0, tries: int = 12) -> list[Cell]:
    """Return cells in which all allowed combinations of `strength` values occur, by a greedy search."""
    chance, cells = random.Random(seed), []
    wanted = {
        frozenset(zip(names, values, strict=True))
        for names in combinations(FEATURES, strength)
        for values in product(*(FEATURES[name] for name in names))
        if is_allowed(dict(zip(names, values, strict=True)))
    }
    while wanted:
        # The order of a set differs from process to process; the cells must not.
        ordered = sorted((sorted(combination, key=repr) for combination in wanted), key=repr)
        found = [_complete(dict(chance.choice(ordered)), wanted, strength, chance) for _ in range(tries)]
        best = max(found, key=lambda cell: len(_combinations(cell, strength) & wanted))
        covered = _combinations(best, strength) & wanted
        if not covered:
            # What is left has no allowed cell around it.
            wanted -= {each for each in wanted if not _has_cell(dict(each))}
            continue
        wanted -= covered
        cells.append({name: best[name] for name in FEATURES})
    return cells


def _combinations(cell: Cell, strength: int) -> set[frozenset[Value]]:
    return set(map(frozenset, combinations(cell.items(), strength))) if len(cell) == len(FEATURES) else set()


def _complete(cell: Cell, wanted: set[Any], strength: int, chance: random.Random) -> Cell:
    """Return a cell around some values, or what there is of it if no further value is allowed."""
    for name in chance.sample(list(FEATURES), len(FEATURES)):
        if name in cell:
            continue
        options = [value for value in FEATURES[name] if is_allowed({**cell, name: value})]
        if not options:
            return cell

        def gain(value: Any, name: str = name) -> float:
            new = (name, value)
            others = combinations(cell.items(), strength - 1)
            return sum(frozenset({new, *rest}) in wanted for rest in others) + 0.5 * chance.random()

        cell[name] = max(options, key=gain)
    return cell


def _has_cell(cell: Cell) -> bool:
    """Return whether there is an allowed cell around some values."""
    rest = [name for name in FEATURES if name not in cell]
    if not rest:
        return True
    options = [{**cell, rest[0]: value} for value in FEATURES[rest[0]]]
    return any(is_allowed(each) and _has_cell(each) for each in options)


def name_of(cell: Cell) -> str:
    """Return what a cell has besides the defaults, as text."""
    changed = [f"{name}={value}" for name, value in cell.items() if value != FEATURES[name][0]]
    return ",".join(changed) or "defaults"
