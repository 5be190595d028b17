"""Studies from files: of samples, by `compose`, and of a study or a model, by `load`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from ..model import Lines, Record, SharedKernelMixture, progress_bar, read_model, warn_caller, watched_by
from .comparison import Design
from .description import pandas
from .files import About, parts_of
from .markers import marker_names
from .metadata import read_metadata
from .populations import AlternativesWarning, checked_mixture, merge_kernels
from .reading import open_cells
from .starting import start_of
from .study import Study

# Many plain kernels describe populations of any shape, and quickly (benchmarks/cells.py). Narrower ones
# describe spikes.
_KERNELS: dict[str, Any] = {"covariance_type": "diag", "variance_floor": 0.01, "weight_prior": None}
# Stopping rule of the weights of the samples: proportions are within 0.001 of the last ones.
_WEIGHTS: dict[str, Any] = {"freeze": "kernels", "tol": 1e-6, "max_iter": 1000}


def compose(
    samples: Any,
    *,
    sample: Any = None,
    markers: Sequence[str | int] | None = None,
    compensate: bool | str = "auto",
    transform: Any = "auto",
    damaged: str = "refuse",
    skip_unreadable: bool = False,
    text: Mapping[str, Any] | None = None,
    n_kernels: int | None = None,
    n_populations: int | None = None,
    metadata: Any = None,
    condition: str | None = None,
    pair: str | None = None,
    covariate: str | None = None,
    reference: Any = None,
    device: str | None = None,
    n_jobs: int | None = -1,
    verbose: bool = False,
    random_state: int = 0,
) -> Study:
    """Find the populations that samples share, and their proportions in each sample.

    All samples share Gaussian kernels, each sample in its own proportions; kernels near each other are merged
    into populations, see `merge_kernels`. These are named by the markers that tell them apart, such as
    ``CD3⁺ CD4⁺``; without names of markers, they are numbered from 0, the largest first. ``skmix compose``
    calls this function: the same files give the same numbers.

    Parameters
    ----------
    samples : path, list of paths, table, AnnData, ndarray or what `open_rows` returns
        A list of files, a folder or a pattern such as ``"study/*.fcs"``: each file is a sample that has its
        name. Or the cells of all samples in one table, AnnData or array; see `open_rows`.
    sample : str or array-like of shape (N,), default=None
        The sample of each cell: a column of the table or of ``obs``, or an array.
    markers : sequence of str, default=None
        Columns to use, or channels of FCS files by name or marker; None uses all except Time, Event_length
        and the like.
    compensate, transform, damaged, text : default='auto', 'auto', 'refuse', None
        How to read files; see `open_rows`. By default, FCS files are compensated if they have a spill-over
        matrix, and each channel has the scale that follows from how it was recorded, which the notes of
        `describe` say; files with damaged events are refused.
    skip_unreadable : bool, default=False
        Whether to leave out files that cannot be read to their end, with a note of `describe` for each. Each
        file is then read once more.
    n_kernels : int, default=None
        Number of kernels. None takes 100, or one for each 20 cells if there are fewer than 2,000.
    n_populations : int, default=None
        Number of populations; None takes those that differ clearly, see `merge_kernels`. There are at
        least as many kernels.
    metadata : DataFrame, mapping of columns or path of a table, default=None
        What is known about the samples, for `Study.compare`: a row for each sample, named in the column
        ``sample`` or in the index, with or without the suffix of its file.
    condition, pair, covariate : str, default=None
        Columns of the metadata that `Study.compare` and the page compare by default. They are checked before
        the fit.
    reference : object, default=None
        The value of the condition, such as ``"control"``, from which differences are taken.
    device, n_jobs : default=None, -1
        Where to compute, and on how many threads; see `SharedKernelMixture`. The result does not depend on
        their number.
    verbose : bool, default=False
        Whether to print how far the work is, ever less often.
    random_state : int, default=0
        Random seed.

    Returns
    -------
    Study
        The fitted mixture, its populations, and their proportions in each sample.

    Warns
    -----
    UserWarning
        If populations may be one that shifts between samples, because no sample has much of two of them. They
        stay apart, whatever the condition of the samples; `Study.join` makes them one.

    Examples
    --------
    >>> from skmix import compose
    >>> study = compose("study/*.fcs")  # doctest: +SKIP
    >>> study.proportions  # doctest: +SKIP
    """
    if verbose:
        settings, lines = {**locals(), "verbose": False}, Lines("compose")
        with watched_by(lines):
            study = compose(**settings)
        for line in (repr(study)[1:-1], *study.about.origin.notes):
            lines.tell(line)
        return study
    pandas()  # report a missing library before any work
    for name, number in (("n_kernels", n_kernels), ("n_populations", n_populations)):
        if number is not None and (not isinstance(number, Integral) or number is True or number < 1):
            raise ArgumentError(Argument(name, number), " must be a whole number of at least 1.")
    design = Design.of(condition, pair, covariate, reference)
    table = read_metadata(metadata, design.columns if design else {})
    cells = open_cells(
        samples,
        sample=sample,
        markers=markers,
        compensate=compensate,
        transform=transform,
        damaged=damaged,
        skip_unreadable=skip_unreadable,
        text=text,
        seed=random_state,
    )
    about = About.of(cells, table, design)
    if n_kernels is not None and n_kernels > cells.source.n_rows:
        raise ArgumentError(
            Argument("n_kernels", n_kernels), f" is more than the {cells.source.n_rows} cells there are."
        )
    empty = np.flatnonzero(np.isnan(cells.X).all(axis=0)).tolist()
    if empty:
        marker = cells.origin.markers[empty[0]] if cells.origin.markers else f"number {empty[0]}"
        raise ArgumentError(
            f"marker {marker} has no value: leave it out by naming the others with ", Argument("markers"), "."
        )
    settings = {**_KERNELS, "n_jobs": n_jobs, "random_state": random_state}
    start = start_of(cells.X, n_kernels, settings, n_populations)
    start["weights"] = np.repeat(start["weights"], len(about.samples), axis=1)
    settings |= {"init": start, "device": device, **_WEIGHTS}
    model = SharedKernelMixture(len(start["means"]), **settings).fit(cells.source)
    model.set_params(freeze=None)  # the kernels are estimates, from the same cells
    with progress_bar("composing", None):
        populations = merge_kernels(model, n_populations=n_populations)
        if cells.origin.markers:
            named = marker_names(checked_mixture(model), populations, cells.origin.markers)
            populations = populations.renamed(named)
        study = Study.of(model, populations, about)
        shifts = [] if n_populations is not None else populations.shifts(model)
        if shifts:
            study = study.join(*shifts)
        for warning in study.warnings:
            warn_caller(warning, AlternativesWarning)
    return study


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator or a study that `save` wrote.

    Parameters
    ----------
    path : path-like
        A file, from any source: reading it runs no code.

    Returns
    -------
    estimator or Study
        Equal to the saved object: the same class, parameters and fitted attributes and, on the same machine,
        the same predictions to the last bit. A study has no cells.

    Raises
    ------
    OSError, ValueError
        If the file cannot be read, is not a model, is damaged or inconsistent, or has a later version of the
        format.

    Examples
    --------
    >>> from skmix import load
    >>> classifier = load("model.skmix")  # doctest: +SKIP
    """
    return read_model(path, {"Study": _study_of})


def _study_of(record: Record) -> Study:
    model, populations, results, about = parts_of(record)
    study = Study.of(model, populations, about)
    if results is not None:
        study.reference.restore(results)
    return study
