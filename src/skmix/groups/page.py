"""The page of a study: samples × populations with intervals, the populations, and unusual samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..estimators.rows import without_names
from ..plots._common import CLASS_COLOURS, FloatArray
from ..plots._models import DrawnKernels, drawn_kernels, part_label
from ..report.description import describe, traits
from ..report.model_page import chosen_rows, mixture_values, offered_planes, row_values
from ..report.rendering import decimals, in_words, number_text, render_page, significant
from .judging import FEWEST_SAMPLES
from .populations import HEIGHT, Populations
from .proportions import Composition

if TYPE_CHECKING:
    from pandas import DataFrame

_CLEAR = 0.01
"""Mention a second reason if its p-value is below this."""


def study_page(
    model: Any,
    populations: Populations | None,
    composition: Composition,
    *,
    title: str,
    unusual: DataFrame | None = None,
    fitted_shares: FloatArray | None = None,
    cells: tuple[FloatArray, Sequence[Any]] | None = None,
    markers: Sequence[str] = (),
    scale: str = "none",
    made: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return the page of a study: one HTML file that opens offline and fetches nothing.

    `unusual` is the table of `Study.unusual`. New samples are compared with the proportions of those of the
    fit, `fitted_shares`. Some of the `cells`, values (n, M) and samples (n,), are drawn beneath the kernels.
    `made` is a table of how the study was made.
    """
    kernels = drawn_kernels(model)
    if markers:
        kernels = replace(kernels, names=list(markers))
    n_kernels = len(kernels.means)
    kind, parts, shares = composition.kind, composition.parts, composition.shares
    n_numbered = len(parts) - (parts[-1] == "background")
    members = np.arange(n_kernels) if populations is None else populations.of_kernels
    labels = composition.names.tolist()
    others = shares if fitted_shares is None else fitted_shares
    flagged = [] if unusual is None else unusual.loc[unusual["unusual"], "sample"].tolist()
    offered = offered_planes(kernels, 1)
    overall = kernels.weights_of(None)
    # Draw kernels by their weights in all fitted samples: proportions are shown beside the picture.
    alone = replace(kernels, classes=[0], weights=overall[:, None], prior=np.ones(1), shares=np.ones(1))
    tree = None if populations is None or n_kernels == 1 else populations.tree
    if unusual is None and len(model.classes_) < FEWEST_SAMPLES:
        notes = [*notes, f"Unusual samples were not judged: this takes at least {FEWEST_SAMPLES} samples."]
    n_cells, rows, note = int(composition.sizes.sum()), None, ""
    if cells is not None:
        rows = _drawn(model, populations, *cells, labels, offered)
        n_drawn = len(rows["parts"])
        note = f"{n_drawn:,} cells are drawn{', chosen at random' if n_drawn < n_cells else ''}."
    data = {
        "title": title,
        "kind": kind,
        "kernel": "Student’s t distribution" if hasattr(model, "kernel_degrees_") else "Gaussian",
        "n_kernels": n_kernels,
        "n_features": len(kernels.names),
        "n_cells": f"{n_cells:,}",
        "samples": [
            {"name": str(name), "cells": int(size), "unusual": name in flagged}
            for name, size in zip(labels, composition.sizes, strict=True)
        ],
        "n_unusual": len(flagged),
        "judged": unusual is not None,
        "unusual_rows": _unusual_rows(unusual, kind, parts, labels, shares, others),
        "n_numbered": n_numbered,
        "parts": [
            {
                "label": part_label(part, kind),
                "name": _name(kind, part),
                "kernels": np.flatnonzero(members == place).tolist(),
                "listed": in_words(map(part_label, np.flatnonzero(members == place).tolist())),
                "mean": percent(own.mean()),
                "range": f"{percent(own.min())} – {percent(own.max())}",
            }
            for place, (part, own) in enumerate(zip(parts, shares.T, strict=True))
        ],
        "shares": decimals(100 * shares, 4),
        "lower": decimals(100 * composition.lower, 4),
        "upper": decimals(100 * composition.upper, 4),
        "table": [
            [
                (percent(share), f"{percent(low)} – {percent(high)}" if np.isfinite(low) else "–")
                for share, low, high in zip(*of_sample, strict=True)
            ]
            for of_sample in zip(shares, composition.lower, composition.upper, strict=True)
        ],
        "mixture": mixture_values(alone, *offered, name=""),
        "members": members.tolist(),
        "profile": _profile(kernels, overall, members, offered[0]),
        "scale": _scale_note(scale),
        "tree": None if tree is None else significant(tree),
        "cut": None if tree is None else _cut(tree[:, 2], n_numbered),
        "rows": rows,
        "rows_note": note,
        "made": [*made, *traits(describe(model))],
        "notes": list(notes),
        "colours": list(CLASS_COLOURS),
    }
    return render_page("study.html.j2", data, "skmix.groups")


def percent(share: float) -> str:
    """Return a share in percent, with more digits where it is small."""
    shown = number_text(100 * share, 1 if share >= 0.01 else 2 if share >= 0.001 else 3)
    return "0" if shown == "0.000" else shown


def _name(kind: str, part: Any) -> str:
    """Return what to call a part: a kernel or population, or the background."""
    return f"{kind} {part_label(part, kind)}" if isinstance(part, int) else str(part)


def _scale_note(scale: str) -> str:
    """Return what to say about the scale of the values, such as ``arcsinh:150``."""
    if scale == "none":
        return ""
    kind, _, cofactor = scale.partition(":")
    return f"Values are on the {kind} scale{f' with cofactor {cofactor}' if cofactor else ''}."


def _cut(heights: FloatArray, n_parts: int) -> float:
    """Return where a tree is cut into as many parts, by the heights (K − 1,) of its merges in their order."""
    n_merged = len(heights) + 1 - n_parts
    low, high = heights[:n_merged].max(initial=0.0), heights[n_merged:].min(initial=1.05)
    return float(HEIGHT if low <= HEIGHT < high else (low + high) / 2)


def _unusual_rows(
    unusual: DataFrame | None,
    kind: str,
    parts: list[Any],
    labels: Sequence[Any],
    shares: FloatArray,
    others: FloatArray,
) -> list[dict[str, str]]:
    """Return what to say about each unusual sample, the most unusual first.

    Proportions (L, G) are compared with those of the other samples: the same ones, or for new samples the
    samples of the fit.
    """
    if unusual is None:
        return []
    found = []
    for row in unusual[unusual["unusual"]].sort_values("p_adjusted", kind="stable").to_dict("records"):
        reasons = []
        of_shares, of_rows = row["p_composition"], np.nan_to_num(row["p_likelihood"], nan=1.0)
        if of_shares <= max(_CLEAR, of_rows):
            place = labels.index(row["sample"])
            medians = np.median(np.delete(shares, place, axis=0) if others is shares else others, axis=0)
            largest = int(np.abs(shares[place] - medians).argmax())
            # The least probable proportion may be a small one: name the one that differs most too.
            usual = {parts.index(row[kind]): row["usual_proportion"]}
            usual.setdefault(largest, medians[largest])
            reasons += [
                f"{_name(kind, parts[g])}: {percent(shares[place, g])} %, usually {percent(usually)} %"
                for g, usually in usual.items()
            ]
        if of_rows <= max(_CLEAR, of_shares):
            which = "less" if row["z_likelihood"] < 0.0 else "more"
            reasons.append(
                f"its cells are {which} likely than those of others ({row['z_likelihood']:+.1f} SD)"
            )
        p_values = {
            name: "–" if np.isnan(row[name]) else f"{row[name]:.2g}"
            for name in ("p_composition", "p_likelihood", "p_adjusted")
        }
        found.append({"name": str(row["sample"]), "reasons": "; ".join(reasons), **p_values})
    return found


def _profile(
    kernels: DrawnKernels, weights: FloatArray, members: Any, features: Sequence[int]
) -> dict[str, list[Any]]:
    """Return the mean of each population in the offered features, and its place from lowest to highest."""
    belongs = (members[:, None] == np.arange(members.max() + 1)) * weights[:, None]
    # A population without any weight has the plain mean of its kernels.
    empty = belongs.sum(axis=0) <= 0.0
    belongs[:, empty] = (members[:, None] == np.arange(members.max() + 1))[:, empty]
    means = (belongs.T @ kernels.means[:, features]) / belongs.sum(axis=0)[:, None]
    low, high = means.min(axis=0), means.max(axis=0)
    places = (means - low) / np.where(high > low, high - low, 1.0)
    # Show three digits of the differences between populations.
    digits = np.clip(2 - np.floor(np.log10(np.where(high > low, high - low, 1.0))), 0, 6).astype(int)
    return {
        "features": [kernels.names[d] for d in features],
        "means": [[number_text(value, n) for value, n in zip(row, digits, strict=True)] for row in means],
        "places": decimals(places, 2),
    }


def _drawn(
    model: Any,
    populations: Populations | None,
    X: FloatArray,
    samples: Sequence[Any],
    names: Sequence[Any],
    offered: tuple[list[int], FloatArray],
) -> dict[str, Any]:
    """Return the cells to draw, with the places of their samples and populations."""
    chosen = chosen_rows(len(X))
    rows, nameless = X[chosen], without_names(model)
    places = {name: place for place, name in enumerate(names)}
    parts = nameless.predict(rows) if populations is None else populations.predict(nameless, rows)
    return {
        "samples": [places.get(samples[row]) for row in chosen],
        "parts": parts.tolist(),
        "values": row_values(rows, *offered),
    }
