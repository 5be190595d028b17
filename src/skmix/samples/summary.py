"""A study in plain values, and how it was made."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .._words import listed
from ..data import in_words
from .description import Reference
from .files import About
from .populations import Populations

# Most files and markers that a page lists.
MOST_LISTED = 40


def describe(
    reference: Reference, populations: Populations | None, about: About, sizes: Any, unusual: Any
) -> dict[str, Any]:
    """Return a summary of a study, ready for JSON, given sizes (L,) and verdicts (L,) of its samples."""
    model = reference.model
    return {
        "n_cells": sum(int(size) for size in sizes),
        "markers": [str(name) for name in getattr(model, "feature_names_in_", [])],
        **about.origin.preparation,
        "n_kernels": len(model.means_),
        "n_populations": None if populations is None else len(populations),
        "populations": None if populations is None else populations.display_names,
        "design": None if about.design is None else asdict(about.design),
        "converged": bool(model.converged_),
        "n_iter": int(model.n_iter_),
        "joined": [list(names) for names in about.origin.joined],
        "notes": list(about.origin.notes),
        "samples": [
            {"sample": str(name), "cells": int(size), "unusual": flag}
            for name, size, flag in zip(about.samples, sizes, unusual, strict=True)
        ],
    }


def provenance(reference: Reference, about: About, n_cells: int) -> list[tuple[str, str]]:
    """Return how a study of this many cells was made, as pairs of name and text."""
    origin, model, fitted = about.origin, reference.model, reference.samples
    facts = [("files", f"{len(origin.files)}: {listed(origin.files, MOST_LISTED)}")] if origin.files else []
    facts.append(("cells", f"{n_cells:,}"))
    if origin.column is not None or len(origin.files) == len(about.samples):
        facts.append(("samples by", "file" if origin.column is None else f"column {origin.column}"))
    facts += [
        ("markers", listed(origin.markers or [f"{model.n_features_in_} without names"], MOST_LISTED)),
        ("scale", in_words(origin.preparation)),
    ]
    if origin.joined:
        facts.append(("joined", "; ".join(" + ".join(names) for names in origin.joined)))
    n_fitted = sum(int(size) for size in fitted.sizes)
    return [
        *facts,
        ("kernels", str(len(model.means_))),
        ("fitted to", f"{len(fitted.names)} sample{'s'[: len(fitted.names) > 1]} of {n_fitted:,} cells"),
        ("prior on the weights", "none" if model.weight_prior is None else str(model.weight_prior)),
        ("passes of EM", f"{model.n_iter_}{'' if model.converged_ else ', not converged'}"),
        ("seed", str(model.random_state)),
    ]
