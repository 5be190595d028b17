"""The page of a study: samples × populations with intervals, the populations, and unusual samples."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import ArgumentError
from ..engine.records import FloatArray
from ..model.kernel_sets import DrawnKernels, drawn_kernels
from ..plots.style import CLASS_COLOURS, short_name
from ..report import describe
from ..report.description import traits
from ..report.rendering import decimals, in_words, kernel_values, number_text, render_page, significant
from .comparison import Comparison
from .description import Composition
from .judging import FEWEST_SAMPLES
from .markers import Profiles, profiles
from .merging import HEIGHT
from .plots import drawn_cells, map_cells, percent
from .predicting import KnownSamples

if TYPE_CHECKING:
    from pandas import DataFrame

# The page mentions a second reason if its p-value is at most this.
_CLEAR = 0.01
# Most features and axes that the explorer offers, and most entries of covariances: about half a megabyte.
_MAX_FEATURES, _MAX_ENTRIES = 40, 80_000
# Most directions of difference that the explorer offers as axes.
_MAX_AXES = 4
# Most cuts of the tree that the page offers on either side of that of the study.
_MOST_CUTS = 15
# Most features whose planes are shown side by side.
_MAX_PLANES = 6


def study_page(study: Any, title: str | None, comparison: Comparison | None) -> str:
    """Return the page of a study: one HTML file that opens offline and fetches nothing."""
    model, populations, composition, unusual = study.model, study.populations, study.composition, study.judged
    kernels, fitted = drawn_kernels(model), study.reference.composition
    if study.markers:
        kernels = replace(kernels, names=study.markers)
    n_kernels, noun, names = len(kernels.means), composition.noun, composition.populations
    members = np.arange(n_kernels) if populations is None else populations.of_kernels
    offered = offered_planes(kernels)
    # Draw kernels with their weights in all fitted samples: proportions are shown beside the picture.
    alone = replace(kernels, classes=[0], weights=kernels.weights_of(None)[:, None], prior=np.ones(1))
    is_tree = populations is not None and n_kernels > 1
    made = study.provenance()
    scale = dict(made)["scale"]
    flagged = [] if unusual is None else unusual.loc[unusual["unusual"], "sample"].tolist()
    notes = list(study.about.origin.notes)
    if unusual is None:
        notes.append(f"Finding unusual samples takes at least {FEWEST_SAMPLES} samples.")
    n_samples = len(composition.names)
    if comparison is not None and not comparison.is_of(composition):
        raise ValueError("comparison is of other samples or populations: make it by this study's compare.")
    title = title or f"Composition of {n_samples} sample{'' if n_samples == 1 else 's'}"
    n_cells, rows, note = int(composition.sizes.sum()), _drawn(study, offered), ""
    if rows is not None:
        n_drawn = len(rows["populations"])
        note = f"{n_drawn:,} cells are drawn{', chosen at random' if n_drawn < n_cells else ''}."
    data = {
        "title": title,
        "noun": noun,
        "shrunken": hasattr(model, "weight_prior_"),
        "kernel": "Student’s t distribution" if hasattr(model, "kernel_degrees_") else "Gaussian",
        "n_kernels": n_kernels,
        "n_features": len(kernels.names),
        "n_cells": f"{n_cells:,}",
        "samples": [
            {"name": str(name), "cells": int(size), "unusual": name in flagged}
            for name, size in zip(composition.names.tolist(), composition.sizes, strict=True)
        ],
        "n_unusual": len(flagged),
        "judged": unusual is not None,
        "unusual_rows": [] if unusual is None else _unusual_rows(unusual, composition, fitted),
        "conditions": None if comparison is None else _conditions(study, comparison),
        "named": any(sign in str(name) for name in names for sign in "⁺⁻"),
        "populations": [
            {
                "label": short_name(name, noun),
                "name": _full_name(name, noun),
                "kernels": np.flatnonzero(members == g).tolist(),
                "listed": in_words(map(short_name, np.flatnonzero(members == g).tolist())),
                "mean": percent(shares.mean()),
                "range": f"{percent(shares.min())} – {percent(shares.max())}",
            }
            for g, (name, shares) in enumerate(zip(names, composition.proportions.T, strict=True))
        ],
        "proportions": decimals(100 * composition.proportions, 4),
        "lower": decimals(100 * composition.lower, 4),
        "upper": decimals(100 * composition.upper, 4),
        "table": [
            [
                (percent(proportion), f"{percent(low)} – {percent(high)}" if np.isfinite(low) else "–")
                for proportion, low, high in zip(*of_sample, strict=True)
            ]
            for of_sample in zip(composition.proportions, composition.lower, composition.upper, strict=True)
        ],
        "mixture": _explored(alone, *offered),
        "members": members.tolist(),
        "profile": _profile(profiles(model, populations), kernels.names, offered[0]),
        "scale": "" if scale == "none" else f"Values are on the scale {scale}.",
        "tree": significant(populations.tree) if is_tree else None,
        "height": HEIGHT,
        "joined": "joined" in dict(made),
        "cuts": _cuts(study, noun) if is_tree else None,
        "cut": None if populations is None else populations.cut_height,
        "rows": rows,
        "rows_note": note,
        "made": [*made, *traits(describe(model), ("cells", "sample"))],
        "notes": notes,
        "warnings": study.warnings,
        "colours": list(CLASS_COLOURS),
    }
    return render_page("study.html.j2", data, "skmix.samples")


def _full_name(name: Any, noun: str) -> str:
    """Return the name of a population, or its number after the noun, such as ``kernel k0``."""
    return f"{noun} {short_name(name, noun)}" if isinstance(name, int) else str(name)


def _unusual_rows(unusual: DataFrame, composition: Composition, fitted: Composition) -> list[dict[str, str]]:
    """Return the reasons why each unusual sample is unusual, the most unusual sample first.

    Proportions are compared with the medians of the other samples of the fit.
    """
    lines, noun, names, proportions = [], composition.noun, composition.populations, composition.proportions
    for row in unusual[unusual["unusual"]].sort_values("p_adjusted", kind="stable").to_dict("records"):
        reasons = []
        of_composition, of_cells = row["p_composition"], np.nan_to_num(row["p_likelihood"], nan=1.0)
        if of_composition <= max(_CLEAR, of_cells):
            here = proportions[composition.names.tolist().index(row["sample"])]
            medians = np.median(fitted.proportions[fitted.names != row["sample"]], axis=0)
            largest = int(np.abs(here - medians).argmax())
            # The least probable proportion may be a small one: name the one that differs most too.
            usual = {names.index(row[noun]): row["usual_proportion"]}
            usual.setdefault(largest, medians[largest])
            reasons += [
                f"{_full_name(names[g], noun)}: {percent(here[g])} %, usually {percent(usually)} %"
                for g, usually in usual.items()
            ]
        if of_cells <= max(_CLEAR, of_composition):
            which = "less" if row["z_likelihood"] < 0.0 else "more"
            reasons.append(
                f"its cells are {which} likely than those of other samples ({row['z_likelihood']:+.1f} SD)"
            )
        p_values = {
            name: "–" if np.isnan(row[name]) else f"{row[name]:.2g}"
            for name in ("p_composition", "p_likelihood", "p_adjusted")
        }
        lines.append({"name": str(row["sample"]), "reasons": "; ".join(reasons), **p_values})
    return lines


def _conditions(study: Any, comparison: Comparison) -> dict[str, Any]:
    conditions, design = comparison.conditions, comparison.design
    sides = comparison.sides
    lines = [
        _lines(side.names, table, comparison.order)
        for side, table in zip(sides, comparison.tables, strict=True)
    ]
    return {
        "condition": None if design is None else design.condition,
        "pair": None if design is None else design.pair,
        "covariate": None if design is None else design.covariate,
        "names": [str(name) for name in conditions],
        "samples": [places.tolist() for places in conditions.values()],
        "n_pairs": max(0 if side.pairs is None else int(side.pairs.max()) + 1 for side in sides),
        "joined": comparison.joined(),
        "panels": [{"population": g, "q": f"{comparison.q_values[g]:.2g}"} for g in comparison.order],
        "tables": lines,
        "predicted": _predicted(study, comparison),
    }


def _predicted(study: Any, comparison: Comparison) -> dict[str, Any] | None:
    """Return how well conditions of held-out samples are predicted; None with too few samples."""
    column, units = np.full(len(study.samples), None), dict[int, int]()
    for name, places in comparison.conditions.items():
        column[places] = name
    for one, other in comparison.joined():
        units[one] = units[other] = units.get(one, units.get(other, other))
    together = [units.get(place) for place in range(len(column))]
    with suppress(ArgumentError):
        return KnownSamples(study.composition, "condition", column.tolist(), together).score()
    return None


def _lines(names: tuple[Any, Any], table: DataFrame, order: Sequence[int]) -> dict[str, Any]:
    """Return the lines of a value of the condition beside the reference, in percent."""
    means = [name for name in table if str(name).startswith("proportion")]
    lines = []
    for g in order:
        line = table.iloc[g]
        lines.append(
            {
                "population": g,
                "means": [percent(line[name]) for name in means],
                "difference": _signed(line["difference"]),
                "interval": f"{_signed(line['lower'])} to {_signed(line['upper'])}",
                "p": f"{line['p_value']:.2g}",
                "q": f"{line['q_value']:.2g}",
            }
        )
    return {"names": [str(name) for name in names], "lines": lines}


def _signed(proportion: float) -> str:
    text = percent(abs(proportion))
    return text if text == "0" else f"{'−' if proportion < 0.0 else '+'}{text}"


def _profile(profile: Profiles, names: Sequence[str], features: Sequence[int]) -> dict[str, list[Any]]:
    """Return the mean of each population in the offered features, and its distance from that of all cells."""
    means = profile.means[:, features]
    span = np.ptp(means, axis=0)
    # Show three digits of the differences between populations.
    digits = np.clip(2 - np.floor(np.log10(np.where(span > 0.0, span, 1.0))), 0, 6).astype(int)
    return {
        "features": [names[d] for d in features],
        "means": [[number_text(value, n) for value, n in zip(row, digits, strict=True)] for row in means],
        "deviations": decimals(profile.deviations[:, features], 2),
    }


def _cuts(study: Any, noun: str) -> dict[str, Any] | None:
    """Return populations of finer and coarser cuts of the tree, and kernels in each sample in percent."""
    in_samples = study.kernel_shares
    if in_samples is None or in_samples.size > _MAX_ENTRIES:
        return None
    n_kernels, n = len(study.model.means_), len(study.populations)
    cuts = []
    for number in range(max(1, n - _MOST_CUTS), min(n_kernels, n + _MOST_CUTS) + 1):
        cut = study if number == n else study.recut(number)
        members = cut.populations.of_kernels
        named = [
            {
                "label": short_name(name, noun),
                "name": _full_name(name, noun),
                "kernels": np.flatnonzero(members == g).tolist(),
            }
            for g, name in enumerate(cut.populations.display_names)
        ]
        cuts.append({"members": members.tolist(), "populations": named, "next": cut.cuts})
    return {"cuts": cuts, "kernels": decimals(100 * in_samples, 4)}


def _drawn(study: Any, offered: tuple[list[int], FloatArray]) -> dict[str, Any] | None:
    """Return the cells to draw, with the indices of their samples and populations; None without cells."""
    cells = study.about.cells
    if cells is None:
        return None
    chosen, rows, populations = drawn_cells(study.model, study.populations, cells.X)
    kernels = drawn_cells(study.model, None, cells.X)[2]
    places = {name: place for place, name in enumerate(study.samples)}
    (features, planes), axes = offered, None
    values = list(significant(np.concatenate([rows[:, features], rows @ planes.T], axis=1).T))
    with suppress(ValueError):  # a map needs two markers
        positions, axes = map_cells(rows)
        values += significant(positions.T)
    return {
        "samples": [places.get(cells.y[row]) for row in chosen],
        "populations": populations.tolist(),
        "kernels": kernels.tolist(),
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
