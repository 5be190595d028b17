"""Files of studies: what a study knows besides its cells, written and read with checks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..model import Record, SharedKernelMixture, estimator_of, pack, record_of, write_file
from .comparison import Design, sides_of
from .description import Reference
from .metadata import align
from .populations import Populations
from .reading import Cells, Origin, preparation_of


@dataclass(frozen=True)
class About:
    """What a study knows of its samples besides their populations."""

    samples: list[Any]  # their names, in the order of the files
    origin: Origin
    metadata: dict[str, list[Any]] | None = None
    design: Design | None = None  # of the default comparison
    cells: Cells | None = None

    @classmethod
    def of(cls, cells: Cells, table: Any, design: Design | None) -> About:
        """Return what is known of cells and their metadata; refuse what the design cannot compare."""
        samples = list(cells.sizes)
        metadata = align(table, samples)
        if design is not None:
            sides_of(np.array(samples, dtype=object), metadata, design)
        return cls(samples, cells.origin, metadata, design, cells)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise FileExistsError if a file would be replaced without being told to."""
    if path.is_file() and not overwrite:
        raise FileExistsError(f"{path} exists: give another name, or overwrite=True to replace it.")


def write_study(
    path: str | os.PathLike[str], reference: Reference, populations: Populations | None, about: About
) -> None:
    """Write a study; its populations have the names that they have now."""
    merged = None
    if populations is not None:
        names = {str(number): name for number, name in populations.names.items()}
        merged = {"of_kernels": populations.of_kernels, "tree": populations.tree, "names": names}
    fields = {
        "model": record_of(reference.model),
        "populations": merged,
        "samples": np.array(about.samples),
        "results": reference.to_dict(),
        "origin": asdict(about.origin),
        "metadata": about.metadata,
        "design": None if about.design is None else asdict(about.design),
    }
    write_file(path, *pack(Record("Study", fields)))


def parts_of(record: Record) -> tuple[Any, Populations | None, dict[str, Any] | None, About]:
    """Return model, populations, results for `Reference.restore`, and the rest; refuse what is malformed."""
    fields = record.fields
    model, merged, design = estimator_of(fields["model"]), fields["populations"], fields.get("design")
    _require(isinstance(model, SharedKernelMixture), f"a study cannot have a {type(model).__name__} inside")
    populations = None
    if merged is not None:
        names = {int(number): name for number, name in merged["names"].items()}
        populations = Populations(merged["of_kernels"], merged["tree"], names)
        populations.check(len(model.means_))
    samples, origin = fields["samples"].tolist(), Origin(**fields["origin"])
    about = About(samples, origin, fields["metadata"], None if design is None else Design(**design))
    _check_origin(origin, model)
    for name, values in (about.metadata or {}).items():
        is_column = isinstance(values, list) and len(values) == len(samples)
        is_plain = is_column and all(isinstance(value, bool | int | float | str | None) for value in values)
        _require(is_plain, f"its metadata {name!r} is not a list of {len(samples)} values")
    if about.design is not None:
        sides_of(np.array(samples, dtype=object), about.metadata, about.design)
    return model, populations, fields["results"], about


def _require(is_right: bool, problem: str) -> None:
    if not is_right:
        raise ValueError(problem)


def _are_texts(values: Any) -> bool:
    return isinstance(values, tuple) and all(isinstance(text, str) for text in values)


def _check_origin(origin: Origin, model: Any) -> None:
    texts: Iterable[Any] = (origin.files, origin.markers, origin.notes)
    is_text = all(map(_are_texts, texts)) and isinstance(origin.column, str | None)
    _require(is_text, "its files, column, markers and notes are not text")
    n_markers = len(origin.markers)
    _require(
        n_markers in (0, model.n_features_in_),
        f"it names {n_markers} markers, but its model has {model.n_features_in_}",
    )
    is_joined = isinstance(origin.joined, tuple) and all(map(_are_texts, origin.joined))
    _require(is_joined, f"its joined populations are {origin.joined!r}, not tuples of names")
    prepared = preparation_of(getattr(model, "recipe_", None))
    is_same = isinstance(origin.preparation, dict) and preparation_of(origin.preparation) == prepared
    _require(is_same, f"it says that cells were read as {origin.preparation!r}, unlike its model")
