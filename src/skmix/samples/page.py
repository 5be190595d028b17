"""The page of a study: samples × populations with intervals, the populations, and unusual samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.records import IntArray
from ..model.frames import PreparedRows
from ..model.kernel_sets import DrawnKernels, drawn_kernels
from ..plots.style import CLASS_COLOURS, FloatArray, short_name
from ..report import describe
from ..report.description import traits
from ..report.rendering import decimals, in_words, kernel_values, number_text, render_page, significant
from .conditions import Design
from .differences import Sides, by_q_value
from .judging import FEWEST_SAMPLES
from .markers import Profiles, profiles, short_markers
from .plots import map_cells, percent
from .populations import Populations, checked_mixture
from .proportions import Composition
from .reading import Cells
from .separation import HEIGHT

if TYPE_CHECKING:
    from pandas import DataFrame

# The page mentions a second reason if its p-value is at most this.
_CLEAR = 0.01
# Most cells on a page: more make it larger, but not clearer.
_MAX_CELLS = 3000
# Most features and axes that the explorer offers.
_MAX_FEATURES = 40
# Most entries of covariances on a page: about half a megabyte.
_MAX_ENTRIES = 80_000
# Most directions of difference that the explorer offers as axes.
_MAX_AXES = 4
# Most features whose planes are shown side by side.
_MAX_PLANES = 6


def study_page(study: Any, title: str, compared: tuple[Design, Sides, DataFrame] | None) -> str:
    """Return the page of a study: one HTML file that opens offline and fetches nothing.

    `compared` is a comparison with its table.
    """
    model, populations, composition = study.model, study.populations, study._composition
    unusual, cells, origin = study._if_judged, study._cells, study._origin
    kernels = drawn_kernels(model)
    if origin.markers:
        kernels = replace(kernels, names=short_markers(origin.markers))
    n_kernels = len(kernels.means)
    noun, names, proportions = composition.noun, composition.populations, composition.proportions
    members = np.arange(n_kernels) if populations is None else populations.of_kernels
    samples = composition.names.tolist()
    # New samples are compared with those of the fit.
    reference = study._reference.shares(study._reference.samples) if study._is_new else proportions
    flagged = [] if unusual is None else unusual.loc[unusual["unusual"], "sample"].tolist()
    offered = offered_planes(kernels)
    overall = kernels.weights_of(None)
    # Draw kernels with their weights in all fitted samples: proportions are shown beside the picture.
    alone = replace(kernels, classes=[0], weights=overall[:, None], prior=np.ones(1))
    tree = None if populations is None or n_kernels == 1 else populations.tree
    notes, made = list(origin.notes), study.provenance()
    scale = dict(made)["scale"]
    if unusual is None:
        notes.append(f"Finding unusual samples takes at least {FEWEST_SAMPLES} samples.")
    n_cells, rows, note = int(composition.sizes.sum()), None, ""
    if cells is not None:
        rows = _drawn(model, populations, cells, samples, offered)
        n_drawn = len(rows["populations"])
        note = f"{n_drawn:,} cells are drawn{', chosen at random' if n_drawn < n_cells else ''}."
    data = {
        "title": title,
        "noun": noun,
        "of_fit": " in the fit" if study._is_new else "",
        "shrunken": hasattr(model, "weight_prior_"),
        "kernel": "Student’s t distribution" if hasattr(model, "kernel_degrees_") else "Gaussian",
        "n_kernels": n_kernels,
        "n_features": len(kernels.names),
        "n_cells": f"{n_cells:,}",
        "samples": [
            {"name": str(name), "cells": int(size), "unusual": name in flagged}
            for name, size in zip(samples, composition.sizes, strict=True)
        ],
        "n_unusual": len(flagged),
        "judged": unusual is not None,
        "unusual_rows": _unusual_rows(unusual, composition, reference),
        "conditions": None if compared is None else _conditions(*compared),
        "named": any(sign in str(name) for name in names for sign in "⁺⁻"),
        "populations": [
            {
                "label": short_name(name, noun),
                "name": _full_name(name, noun),
                "kernels": np.flatnonzero(members == g).tolist(),
                "listed": in_words(map(short_name, np.flatnonzero(members == g).tolist())),
                "mean": percent(own.mean()),
                "range": f"{percent(own.min())} – {percent(own.max())}",
            }
            for g, (name, own) in enumerate(zip(names, proportions.T, strict=True))
        ],
        "proportions": decimals(100 * proportions, 4),
        "lower": decimals(100 * composition.lower, 4),
        "upper": decimals(100 * composition.upper, 4),
        "table": [
            [
                (percent(proportion), f"{percent(low)} – {percent(high)}" if np.isfinite(low) else "–")
                for proportion, low, high in zip(*of_sample, strict=True)
            ]
            for of_sample in zip(proportions, composition.lower, composition.upper, strict=True)
        ],
        "mixture": _explored(alone, *offered),
        "members": members.tolist(),
        "profile": _profile(profiles(checked_mixture(model), populations), kernels.names, offered[0]),
        "scale": "" if scale == "none" else f"Values are on the scale {scale}.",
        "tree": None if tree is None else significant(tree),
        "height": HEIGHT,
        "joined": bool(origin.joined),
        "cut": None if populations is None else populations.cut_height,
        "rows": rows,
        "rows_note": note,
        "made": [*made, *traits(describe(model), ("cells", "sample"))],
        "notes": notes,
        "warning": study._warning,
        "colours": list(CLASS_COLOURS),
    }
    return render_page("study.html.j2", data, "skmix.samples")


def _full_name(name: Any, noun: str) -> str:
    """Return the name of a population, or its number after the noun, such as ``kernel k0``."""
    return f"{noun} {short_name(name, noun)}" if isinstance(name, int) else str(name)


def _unusual_rows(
    unusual: DataFrame | None, composition: Composition, reference: FloatArray
) -> list[dict[str, str]]:
    """Return the reasons why each unusual sample is unusual, the most unusual sample first.

    Proportions are compared with the medians of the `reference` (L, G): those of the other samples or, for
    new samples, of the fit.
    """
    if unusual is None:
        return []
    found, noun, names, proportions = [], composition.noun, composition.populations, composition.proportions
    for row in unusual[unusual["unusual"]].sort_values("p_adjusted", kind="stable").to_dict("records"):
        reasons = []
        of_composition, of_cells = row["p_composition"], np.nan_to_num(row["p_likelihood"], nan=1.0)
        if of_composition <= max(_CLEAR, of_cells):
            sample = composition.names.tolist().index(row["sample"])
            others = np.delete(proportions, sample, axis=0) if reference is proportions else reference
            medians = np.median(others, axis=0)
            largest = int(np.abs(proportions[sample] - medians).argmax())
            # The least probable proportion may be a small one: name the one that differs most too.
            usual = {names.index(row[noun]): row["usual_proportion"]}
            usual.setdefault(largest, medians[largest])
            for g, usually in usual.items():
                found_here = f"{percent(proportions[sample, g])} %, usually {percent(usually)} %"
                reasons.append(f"{_full_name(names[g], noun)}: {found_here}")
        if of_cells <= max(_CLEAR, of_composition):
            which = "less" if row["z_likelihood"] < 0.0 else "more"
            reasons.append(
                f"its cells are {which} likely than those of other samples ({row['z_likelihood']:+.1f} SD)"
            )
        p_values = {
            name: "–" if np.isnan(row[name]) else f"{row[name]:.2g}"
            for name in ("p_composition", "p_likelihood", "p_adjusted")
        }
        found.append({"name": str(row["sample"]), "reasons": "; ".join(reasons), **p_values})
    return found


def _conditions(design: Design, sides: Sides, table: DataFrame) -> dict[str, Any]:
    columns = [*(f"proportion_{name}" for name in sides.names), "difference", "lower", "upper"]
    found = 100.0 * table[columns].to_numpy()
    return {
        **vars(design),
        "names": [str(name) for name in sides.names],
        "sizes": [int(sides.is_first.sum()), int((~sides.is_first).sum())],
        "n_pairs": 0 if sides.pairs is None else int(sides.pairs.max()) + 1,
        "samples": sides.places.tolist(),
        "first": sides.is_first.tolist(),
        "joined": sides.joined(),
        "lines": [
            {
                "population": g,
                "means": [percent(0.01 * value) for value in found[g, :2]],
                "difference": _signed(found[g, 2]),
                "interval": f"{_signed(found[g, 3])} to {_signed(found[g, 4])}",
                "p": f"{table['p_value'][g]:.2g}",
                "q": f"{table['q_value'][g]:.2g}",
            }
            for g in by_q_value(table)
        ],
    }


def _signed(percents: float) -> str:
    text = percent(abs(percents) / 100.0)
    return text if text == "0" else f"{'−' if percents < 0.0 else '+'}{text}"


def _profile(found: Profiles, names: Sequence[str], features: Sequence[int]) -> dict[str, list[Any]]:
    """Return the mean of each population in the offered features, and its distance from that of all cells."""
    means = found.means[:, features]
    span = np.ptp(means, axis=0)
    # Show three digits of the differences between populations.
    digits = np.clip(2 - np.floor(np.log10(np.where(span > 0.0, span, 1.0))), 0, 6).astype(int)
    return {
        "features": [names[d] for d in features],
        "means": [[number_text(value, n) for value, n in zip(row, digits, strict=True)] for row in means],
        "deviations": decimals(found.deviations[:, features], 2),
    }


def drawn_cells(
    model: Any, populations: Populations | None, X: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return indices (n,) of the cells to draw, their rows (n, M), and their populations or kernels (n,)."""
    chosen = np.arange(len(X))
    if len(X) > _MAX_CELLS:
        chosen = np.sort(np.random.RandomState(0).choice(len(X), _MAX_CELLS, replace=False))
    rows = X[chosen]
    prepared: Any = PreparedRows(rows)
    found = model.predict(prepared) if populations is None else populations.predict(model, prepared)
    return chosen, rows, found


def _drawn(
    model: Any,
    populations: Populations | None,
    cells: Cells,
    names: Sequence[Any],
    offered: tuple[list[int], FloatArray],
) -> dict[str, Any]:
    """Return the cells to draw, with the indices of their samples and populations."""
    chosen, rows, found = drawn_cells(model, populations, cells.X)
    places = {name: place for place, name in enumerate(names)}
    (features, planes), axes = offered, None
    values = list(significant(np.concatenate([rows[:, features], rows @ planes.T], axis=1).T))
    with suppress(ValueError):  # a map needs two markers
        positions, axes = map_cells(rows)
        values += significant(positions.T)
    return {
        "samples": [places.get(cells.y[row]) for row in chosen],
        "populations": found.tolist(),
        "values": values,
        "map": axes,
    }


# ---------------------------------------------------------------- the explorer of projections


def offered_planes(kernels: DrawnKernels) -> tuple[list[int], FloatArray]:
    """Return the features that fit on a page, and the axes (q, M) along which kernels differ most."""
    n_kernels, n_features = kernels.means.shape
    # The largest F with F (F + 1) / 2 entries for every kernel.
    fit = int(np.sqrt(2.0 * _MAX_ENTRIES / n_kernels + 0.25) - 0.5)
    n_axes = min(_MAX_AXES, n_kernels - 1) if n_features > 2 else 0
    room = max(2, min(_MAX_FEATURES, fit) - n_axes)
    features = list(range(n_features)) if n_features <= room else kernels.most_separate(room)
    axes = kernels.directions_of_difference(n_axes) if n_axes else np.zeros((0, n_features))
    return features, axes


def _explored(kernels: DrawnKernels, features: list[int], axes: FloatArray) -> dict[str, Any]:
    """Return a mixture in the offered features and axes, with covariances as flat upper triangles."""
    n_features = len(kernels.names)
    means, covariances = kernels.project(np.concatenate([np.eye(n_features)[features], axes]))
    best = np.argsort(-kernels.separation()[features], kind="stable")
    # With many features, the first two axes show more than any two features.
    first = [len(features), len(features) + 1] if len(axes) > 1 and n_features > _MAX_PLANES else None
    note = ""
    if len(features) < n_features:
        note = f"You can choose {len(features)} of the {n_features} features: those in which the kernels are "
        note += "furthest apart."
    return {
        "features": [kernels.names[d] for d in features],
        "axes": [f"axis {d + 1}" for d in range(len(axes))],
        "first": first or sorted(best[:2].tolist()),
        "planes": sorted(best[:_MAX_PLANES].tolist()) if len(features) > 2 else [],
        "note": note,
        **kernel_values(kernels.weights, means, covariances),
    }
