"""The study of many samples: from files to the proportions of the populations they share."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import listed
from ..data.notation import AUTO
from ..data.recipe import Preparation, in_words, same_scale, scale_in_words
from ..data.write import replacing
from ..model import SharedKernelMixture
from ..model.callbacks import Lines, progress_bar, watched_by
from ..model.checks import warn_caller
from ..model.files import Record, pack, write_file
from ..model.saving import estimator_of, read_model, record_of
from .conditions import Design, given_sides, metadata_of, read_metadata, sides_of
from .differences import Sides, differences
from .judging import FEWEST_SAMPLES
from .labelling import predicted_columns, write_labels
from .markers import marker_names, names_after_joining, profiles, short_markers
from .populations import (
    AlternativesWarning,
    Populations,
    alternatives_in_words,
    checked_mixture,
    join_populations,
    merge_kernels,
)
from .proportions import (
    Composition,
    judge_samples,
    pandas,
    places_of,
    shown,
    without_unsure,
)
from .reading import Cells, Origin, are_files, open_cells, preparation_of
from .reference import Reference
from .samples import new_samples
from .starting import TOLERANCE, start_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..plots.style import Axes

# Kernels that are narrower describe spikes, not populations (benchmarks/cells.py).
_KERNELS: dict[str, Any] = {"covariance_type": "full", "variance_floor": 0.01}
# Most files and markers that a page lists.
MOST_LISTED = 40
# Cells of new samples whose likelihood deviates by more standard deviations may be on another scale.
_FAR = 10.0
# Most samples and populations of the table in a notebook.
_MOST_SHOWN = 60


def compose(
    samples: Any,
    *,
    sample: Any = None,
    markers: Sequence[str | int] | None = None,
    compensate: bool | str = AUTO,
    transform: Any = AUTO,
    damaged: str = "refuse",
    text: Mapping[str, Any] | None = None,
    skip_unreadable: bool = False,
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

    All samples share Gaussian kernels, each sample in its own proportions; kernels that no valley of the
    density divides are merged into populations. These are named by the markers that tell them apart, such as
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
        Whether to leave out files that cannot be read; the notes of `describe` name them.
    n_kernels : int, default=None
        Number of kernels. None chooses up to 64 by AICc on 50,000 cells, equally many of each sample.
    n_populations : int, default=None
        Number of populations; None lets the valleys of the density decide, see `merge_kernels`. There are
        at least as many kernels.
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
        given, lines = {**locals(), "verbose": False}, Lines("compose")
        with watched_by(lines):
            study = compose(**given)
        for line in (repr(study)[1:-1], *study._origin.notes):
            lines.tell(line)
        return study
    pandas()  # report a missing library before any work
    for name, number in (("n_kernels", n_kernels), ("n_populations", n_populations)):
        if number is not None and (not isinstance(number, Integral) or number is True or number < 1):
            raise ArgumentError(Argument(name, number), " must be a whole number of at least 1.")
    design = _design_of(condition, pair, covariate, reference)
    metadata = read_metadata(metadata, design)
    cells = open_cells(
        samples,
        sample=sample,
        markers=markers,
        compensate=compensate,
        transform=transform,
        damaged=damaged,
        text=text,
        skip_unreadable=skip_unreadable,
        seed=random_state,
    )
    metadata = _checked(metadata, design, list(cells.sizes))
    if n_kernels is not None and n_kernels > cells.source.n_rows:
        raise ArgumentError(
            Argument("n_kernels", n_kernels), f" is more than the {cells.source.n_rows} cells there are."
        )
    empty = np.flatnonzero(np.isnan(cells.X).all(axis=0)).tolist()
    if empty:
        name = (cells.origin.markers or [f"number {i}" for i in range(cells.X.shape[1])])[empty[0]]
        raise ArgumentError(
            f"marker {name} has no value: leave it out by naming the others with ", Argument("markers"), "."
        )
    settings = {**_KERNELS, "n_jobs": n_jobs, "random_state": random_state}
    start, search = start_of(cells.X, n_kernels, settings, n_populations)
    n_kernels = len(start["means"])
    start["weights"] = np.repeat(start["weights"], len(cells.sizes), axis=1)
    model = SharedKernelMixture(n_kernels, init=start, tol=TOLERANCE, device=device, **settings)
    model.fit(cells.source)
    with progress_bar("composing", None):
        populations = merge_kernels(model, n_populations=n_populations)
        if cells.origin.markers:
            names = marker_names(checked_mixture(model), populations, cells.origin.markers)
            populations = populations.renamed(names)
        study = Study(model, populations)
        study._set_origin(list(cells.sizes), cells.origin, search, metadata, design, cells)
        if warning := study._warning:
            warn_caller(warning, AlternativesWarning)
    return study


class Study:
    """Samples, the populations they share, and the proportions of the populations in each sample.

    `compose` makes a study from files. A study can also be made from any fitted mixture whose classes are
    samples.

    Parameters
    ----------
    model : SharedKernelMixture
        A fitted mixture whose classes are the samples.
    populations : Populations, default=None
        Populations of the model's kernels, from `merge_kernels`; None uses single kernels.
    metadata : DataFrame, mapping of columns or path of a table, default=None
        Conditions of the samples, for `compare`.

    Attributes
    ----------
    model : SharedKernelMixture
        The fitted mixture.
    populations : Populations
        The population of each kernel, the tree of merges, and names.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture, Study
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 1)) + np.repeat([0.0, 20.0, 20.0, 20.0], 50)[:, None]
    >>> model = SharedKernelMixture(2, init={"means": [[0.0], [20.0]]}).fit(X, np.repeat(["a", "b"], 100))
    >>> Study(model).proportions["proportion"].round(3).tolist()
    [0.5, 0.5, 0.0, 1.0]
    """

    model: SharedKernelMixture
    populations: Populations | None

    def __init__(
        self, model: SharedKernelMixture, populations: Populations | None = None, *, metadata: Any = None
    ) -> None:
        own = checked_mixture(model)
        if populations is not None:
            populations.check_model(own)
        self.model, self.populations = model, populations
        self._reference = Reference(own, populations)
        self._samples, self._is_new = self._reference.samples, False
        names = own.classes_.tolist()
        markers = tuple(str(name) for name in getattr(own, "feature_names_in_", ()))
        origin = Origin((), None, markers, preparation_of(getattr(own, "preparation_", None)), ())
        self._set_origin(names, origin, None, metadata_of(read_metadata(metadata), names), None)

    def _set_origin(
        self,
        order: Sequence[Any],
        origin: Origin,
        search: dict[str, Any] | None,
        metadata: dict[str, list[Any]] | None,
        design: Design | None,
        cells: Cells | None = None,
    ) -> Study:
        """Sort the samples as in `order`, and store their origin, search, metadata and design."""
        self._samples = self._samples.take(places_of(self._samples.names, list(order), "samples"))
        self._origin, self._search, self._cells = origin, search, cells
        self._metadata, self._design = metadata, design
        # Tables of `unusual` by alpha, with numbers of populations instead of names.
        self._judged: dict[float, DataFrame] = {}
        return self

    # ---------------------------------------------------------------- proportions and comparisons

    @property
    def samples(self) -> list[Any]:
        """Names of the samples, in the order of the files."""
        return list(self._samples.names.tolist())

    @cached_property
    def _described(self) -> Composition:
        """Composition of the samples, with all intervals and with numbers of populations."""
        if self._is_new:
            return self._reference.compose(self._samples)
        found = self._reference.composition
        return found.take(places_of(found.names, self.samples, "samples"))

    @cached_property
    def _composed(self) -> Composition:
        is_unsure = self._samples.shifts is not None and self._reference.has_errors
        return without_unsure(self._described) if is_unsure else self._described

    @property
    def _composition(self) -> Composition:
        return self._named(self._composed)

    def _named(self, found: Composition) -> Composition:
        if self.populations is None:
            return found
        return replace(found, populations=self.populations.display_names)

    @property
    def proportions(self) -> DataFrame:
        """Proportion of each population, or kernel, in each sample, with 95 % intervals.

        A table with a line for each sample and population: `sample`, `population` or `kernel` (its name or
        number), `proportion`, `lower` and `upper`, and `cells`, the number of cells of the sample or the sum
        of their weights. The proportions of a sample sum to one.

        Intervals describe the error of counting cells, given the populations as found and a fit that has
        converged. They follow from the Fisher information about weights and kernels, as if no value were
        missing, and include the errors of the kernels, unless these were frozen. With a prior on the weights,
        they are those of the posterior; with hierarchical weights, they ignore the prior, and one that misses
        the shrunken proportion is extended to it. With `group_shift`, limits are NaN if kernels overlap so
        much that intervals would be too narrow.
        """
        return self._composition.frame()

    def proportions_of(self, samples: Any, **reading: Any) -> DataFrame:
        """Return the proportions in new samples; see `apply_to`.

        It warns of samples whose cells are so unlike those of the study that they may be on another scale.
        """
        found = self.apply_to(samples, **reading)
        judged = found._if_judged
        odd = [] if judged is None else judged.loc[judged["z_likelihood"].abs() > _FAR, "sample"].tolist()
        if odd:
            warn_caller(
                f"The cells of {shown(odd)} are unlike those of the study: are they on the same scale, and "
                "compensated alike? Study.unusual has the numbers."
            )
        return found.proportions

    def apply_to(
        self,
        samples: Any,
        *,
        metadata: Any = None,
        condition: str | None = None,
        pair: str | None = None,
        covariate: str | None = None,
        reference: Any = None,
        **reading: Any,
    ) -> Study:
        """Return a study of new samples: fit their weights and leave the kernels unchanged.

        A prior on the weights applies to new samples too. With `group_shift`, new samples get their own
        shifts.

        Parameters
        ----------
        samples : path, list of paths, table, AnnData, ndarray or what `open_rows` returns
            New samples with the markers of this study, on its scale; see `compose`. Columns of an array are
            the markers in order.
        metadata, condition, pair, covariate, reference : default=None
            Metadata of the new samples, and what to compare; see `compose`.
        **reading
            How to read them: `sample`, `compensate`, `transform`, `damaged`, `text` and `skip_unreadable`, as
            for `compose`.
            Files that have been compensated already need ``compensate=False``. Another scale than that of the
            fit is refused, but a study of values in memory, which may have been scaled before, takes one for
            files.
        """
        pandas()
        if "markers" in reading:
            raise ArgumentError(Argument("markers"), " are those of the study: leave them out.")
        own = checked_mixture(self.model)
        fitted: dict[str, Any] = getattr(own, "preparation_", {})
        if reading.get("compensate") is False and fitted.get("compensate"):
            own = copy(own)
            own.preparation_ = fitted = {**fitted, "compensate": False}
        if "compensate" in fitted:
            if reading.get("compensate", AUTO) not in (AUTO, fitted["compensate"]):
                raise ArgumentError(Argument("compensate"), " differs from the fit: leave it out.")
            reading["compensate"] = AUTO
        self._check_scale(samples, fitted, reading.get("transform", AUTO))
        is_array = hasattr(samples, "__array__") and not hasattr(samples, "columns")
        names = None if is_array else getattr(own, "feature_names_in_", None)
        markers = None if names is None else [str(name) for name in names]
        design = _design_of(condition, pair, covariate, reference)
        metadata = read_metadata(metadata, design)
        cells = open_cells(samples, own, markers=markers, **reading)
        metadata = _checked(metadata, design, list(cells.sizes))
        with progress_bar("composing", None):
            found = new_samples(own, cells.source)
        other = copy(self)
        for name in ("_described", "_composed"):
            other.__dict__.pop(name, None)
        other.model, other._samples, other._is_new = own, found, True
        origin = replace(cells.origin, joined=self._origin.joined)
        return other._set_origin(list(cells.sizes), origin, self._search, metadata, design, cells)

    def _check_scale(self, samples: Any, fitted: Preparation, scale: Any) -> None:
        """Refuse a scale for new samples that is not that of the fit, if it is known."""
        # Values in memory may have been scaled before the fit: then files need a scale.
        is_known = "transform" in fitted or self._origin.files or not are_files(samples)
        known = fitted if "transform" in fitted else {"transform": "none"}
        if is_known and scale != AUTO and not same_scale(scale, known["transform"]):
            raise ArgumentError(
                Argument("transform"),
                f" differs from the fit, which was on the scale {scale_in_words(known)}: leave it out, or "
                "give values on that scale.",
            )

    def compare(
        self,
        condition: Any = None,
        other: Any = None,
        *,
        pair: str | None = None,
        covariate: str | None = None,
        metadata: Any = None,
    ) -> DataFrame:
        """Return the differences between the proportions of two sets of samples.

        Parameters
        ----------
        condition : str or sequence of samples, default=None
            A column of the metadata that has two values, or the samples of one side. Samples without a value
            are left out, with a warning. None compares what `compose` was told to.
        other : str or sequence of samples, default=None
            The reference, such as ``"control"``: the value of the condition from which differences are taken.
            None takes the reference of the study or, without one, the value that comes last in sorted order.
            If `condition` is a sequence, the samples of the other side.
        pair : str, default=None
            A column of the metadata that names pairs, such as donors with a sample of each side. Samples of
            a pair on the same side are averaged; pairs without samples of both sides are left out.
        covariate : str, default=None
            A column of the metadata to adjust for: a category, such as a batch, or a number. Whole numbers
            that each have several samples are categories.
        metadata : DataFrame, mapping of columns or path of a table, default=None
            Conditions of the samples; None uses the metadata of the study.

        Returns
        -------
        pandas.DataFrame
            `population` or `kernel`; `proportion_a` and `proportion_b`, means over the samples of each side
            (with a condition, its values replace `a` and `b`, and the reference is the second); `difference`,
            the first less the second, `lower`, `upper`, `p_value`, and `q_value`: among the lines with a
            q-value of at most 0.05, about 5 % or less are expected to be false discoveries (Benjamini and
            Hochberg).

        Notes
        -----
        Samples are the units, not cells: means are not weighted by cells. Variances are those among samples,
        but at least half of what their numbers of cells imply. Proportions are without a learnt prior.

        Without pairs and covariate, intervals are Welch's. A side of a single sample has the variance of its
        proportion, and represents only itself. With pairs or a covariate, means, difference and interval are
        those of a linear model of arcsin √proportion.
        """
        sides = self._sides(condition, other, pair, covariate, metadata)
        if sides.left_out:
            lacks = "" if sides.covariate is None else " or of the covariate"
            lacks = lacks if sides.pairs is None else " or of a partner"
            left = f"{shown(sides.left_out)}, for lack of a condition{lacks}"
            warn_caller(f"Left out of the comparison: {left}.")
        found = self._named(self._described).take(sides.places)
        columns = differences(found.counted, found.variances, sides)
        return pandas().DataFrame({found.noun: found.populations} | columns)

    def _sides(
        self, condition: Any, other: Any, pair: str | None, covariate: str | None, metadata: Any
    ) -> Sides:
        names, table = self._samples.names, self._metadata
        if metadata is not None:
            table = metadata_of(read_metadata(metadata), self.samples)
        is_column = condition is None or (isinstance(condition, str) and condition in (table or ()))
        if other is not None and not is_column:
            return given_sides(names, table, condition, other, pair, covariate)
        own, design = self._design, self._design if condition is None else Design(condition, pair, covariate)
        if design is None or (condition is None and (pair, covariate) != (None, None)):
            raise ArgumentError(Argument("condition"), " is missing: give a column of the metadata.")
        if other is None and own is not None and own.condition == design.condition:
            other = own.reference
        return sides_of(names, table, replace(design, reference=other))

    def unusual(self, *, alpha: float = 0.05) -> DataFrame:
        """Return which samples have an unusual composition, or cells that the kernels describe badly.

        The proportions of each sample are compared with those of the others, and the log-likelihood of its
        cells with its expectation for a sample of this composition and size. New samples are compared with
        those of the fit. The fit needs at least five samples.

        Parameters
        ----------
        alpha : float, default=0.05
            Largest adjusted p-value of a sample that is called unusual: if all samples are alike, the
            probability that any is called unusual is at most about this.

        Returns
        -------
        pandas.DataFrame
            A line for each sample: `sample`, `cells`; `population` or `kernel`, the one with the least usual
            proportion, its `proportion`, the `usual_proportion` in the other samples, and `p_composition`,
            the p-value for all populations together (Bonferroni); `log_likelihood`, the mean over its cells,
            `z_likelihood`, its deviation from the expectation as a standard normal variate, and
            `p_likelihood`; `p_adjusted`, the p-value for composition and likelihood (Bonferroni) of all
            samples (Holm); `unusual`; and the `reason`: proportions or cells, whichever is less probable.
            Proportions are without a learnt prior. Log-likelihoods are NaN
            after `partial_fit` and `add_class`, and if cells had missing values.
        """
        if not 0.0 < alpha < 1.0:
            raise ValueError(f"alpha must be between 0 and 1, got {alpha!r}.")
        if not self._reference.is_judged:
            raise ValueError(
                f"The study has {len(self.model.classes_)} sample(s): at least {FEWEST_SAMPLES} are needed "
                "to tell which are unusual."
            )
        if alpha not in self._judged:
            new = (self._samples, self._described) if self._is_new else None
            found = judge_samples(self._reference, new, alpha)
            places = {name: place for place, name in enumerate(self.samples)}
            order = found["sample"].map(places).argsort(kind="stable")
            self._judged[alpha] = found.iloc[order].reset_index(drop=True)
        found = self._judged[alpha].copy()
        if self.populations is not None and self.populations.names:
            names: Any = self.populations.names
            found["population"] = [names.get(number, number) for number in found["population"]]
        return found

    @property
    def _if_judged(self) -> DataFrame | None:
        """The table of `unusual`; None if the fit has too few samples."""
        return self.unusual() if self._reference.is_judged else None

    def rename(self, names: Mapping[int | str, str]) -> Study:
        """Rename populations, given by number or name, such as ``{3: "CD4 T"}``, and return the study."""
        if self.populations is None:
            raise ValueError("This study has kernels, but no populations to name.")
        self.populations = self.populations.renamed(names)
        return self

    def join(self, *populations: Any) -> Study:
        """Return a study in which populations are one, such as one that shifts between samples.

        The kernels do not change. Populations are numbered anew; those that have names by markers get new
        ones, and those that you renamed keep yours.

        Parameters
        ----------
        *populations : str or int, or sequences of these
            Names or numbers of the populations to join, such as ``join("CD3⁺ 1", "CD3⁺ 2")``; or sequences of
            them, each of which becomes one population: ``join([0, 4], [2, 3])``. Names may have the signs of
            a keyboard, such as ``CD3+``.

        Returns
        -------
        Study
            A new study; this one does not change.
        """
        old, markers = self.populations, self._origin.markers
        if old is None:
            raise ValueError("This study has kernels, but no populations to join.")
        are_sets = all(isinstance(population, (list, tuple)) for population in populations)
        groups = [old.numbers_of(group) for group in (populations if are_sets else (populations,))]
        several = [number for group in groups for number in group]
        if not groups or min(map(len, groups)) < 2 or len(set(several)) < len(several):
            raise ValueError(
                "join needs two populations or more, none of them twice, such as join(0, 1) or "
                f"join([0, 1], [2, 3]); got {', '.join(map(repr, populations)) or 'none'}."
            )
        model = self._reference.model
        new = join_populations(model, old, groups)
        if old.names and markers:
            new = new.renamed(names_after_joining(model, old, new, markers))
        other = copy(self)
        for name in ("_described", "_composed"):
            other.__dict__.pop(name, None)
        other.populations, other._reference, other._judged = new, Reference(model, new), {}
        named = tuple(tuple(str(old.display_names[number]) for number in group) for group in groups)
        other._origin = replace(self._origin, joined=(*self._origin.joined, *named))
        return other

    @property
    def _warning(self) -> str | None:
        """What to say of populations that may be one that shifts between samples."""
        if self.populations is None or not self._reference.alternatives:
            return None
        where = " of the fit" if self._is_new else ""
        return alternatives_in_words(self._reference.alternatives, self.populations.display_names, where)

    def label_cells(
        self, target: Any, samples: Any = None, *, probabilities: bool = True, name: str | None = None
    ) -> None:
        """Write the population, or kernel, of each cell into a table, an AnnData or copies of FCS files.

        Cells of the study's samples are labelled with the weights and shifts of their sample, which is known
        by the name of the file, or by the column that named the samples of the study; cells of other or
        unknown samples, with averages over the samples. ``skmix predict`` gives the same labels.

        Parameters
        ----------
        target : path or AnnData
            Name of a table (``.csv``, ``.tsv``, ``.parquet``, text also with ``.gz``), an AnnData of these
            cells, which is modified, or a folder for copies of the FCS files.
        samples : array-like of shape (n, M), default=None
            The cells, in any form that `SharedKernelMixture.fit` takes; None takes the cells of the study. A
            study loaded from a file has none.
        probabilities : bool, default=True
            Whether to write the probability of each population to tables and AnnData; FCS files have none.
        name : str, default=None
            Name of the column or channel; None uses ``population`` or ``kernel``.

        Notes
        -----
        A table has the column ``sample`` if the samples of the cells are known, then the populations, and the
        probability of each, such as ``p_CD3⁺`` or ``p_0``. Tables and AnnData have the names of the
        populations that have one. In an AnnData, populations are a categorical column of ``obs``;
        probabilities are in ``obsm``. FCS files get an additional channel of numbers, in single precision.
        """
        if samples is None:
            if self._cells is None:
                problem = "a study that was loaded, or made from a model, holds no cells. Give their files."
                raise ArgumentError(Argument("samples"), f" is missing: {problem}")
            samples = self._cells.source
        write_labels(self, samples, target, probabilities=probabilities, name=name)

    def predictions(self, samples: Any, *, why: bool = False, **reading: Any) -> dict[str, np.ndarray]:
        """Return what the study says of each cell, as the columns of a table; ``skmix predict`` writes them.

        Parameters
        ----------
        samples : path, list of paths, table, AnnData or ndarray
            The cells. Their samples are known as in `label_cells`, which gives the same labels.
        why : bool, default=False
            Whether to add the columns of `skmix.report.Reasons.in_words`.
        **reading
            How to read files: `text` and `damaged` of `open_rows`.

        Returns
        -------
        dict of ndarray of shape (n,)
            ``population`` or ``kernel``, its probabilities ``p_…``, ``log_density`` and ``outlier``; see
            `skmix.report.predictions`.
        """
        return predicted_columns(self, samples, why=why, **reading)

    # ---------------------------------------------------------------- descriptions and pictures

    def describe(self) -> dict[str, Any]:
        """Return a summary of the study as plain values, ready for JSON."""
        model, origin = self.model, self._origin
        table = self._if_judged
        flagged = None if table is None else set(table.loc[table["unusual"], "sample"])
        return {
            "n_cells": sum(int(size) for size in self._samples.sizes),
            "markers": [str(name) for name in getattr(model, "feature_names_in_", [])],
            **origin.preparation,
            "n_kernels": len(model.means_),
            "n_populations": None if self.populations is None else len(self.populations),
            "populations": None if self.populations is None else self.populations.display_names,
            "search": self._search,
            "design": None if self._design is None else asdict(self._design),
            "converged": bool(model.converged_),
            "n_iter": int(model.n_iter_),
            "joined": [list(names) for names in origin.joined],
            "warnings": [] if self._warning is None else [self._warning],
            "notes": list(origin.notes),
            "samples": [
                {
                    "sample": str(name),
                    "cells": int(size),
                    "unusual": None if flagged is None else name in flagged,
                }
                for name, size in zip(self.samples, self._samples.sizes, strict=True)
            ],
        }

    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot the proportions as a heat map and mark unusual samples.

        Colours show the square root of the proportion, so that small ones can be told apart. Names of unusual
        samples have an arrow; if the composition is unusual, the least usual proportion has a frame.
        """
        from .plots import plot_proportions

        return plot_proportions(self.proportions, self._if_judged, axes)

    def plot_markers(self, axes: Axes | None = None) -> Axes:
        """Plot the mean of each population, or kernel, in each marker as a heat map.

        Colours show the distance from the mean of all cells, in standard deviations of all cells.
        """
        from .plots import plot_markers

        deviations = profiles(checked_mixture(self.model), self.populations).deviations
        return plot_markers(deviations, self._names, self._markers, axes)

    def plot_map(self, axes: Axes | None = None) -> Axes:
        """Plot some cells in two dimensions, in the colours of their populations, or kernels.

        At most 3000 cells, equally many of each sample, are placed by their first two principal components. A
        study of a model, or from a file, has no cells.
        """
        from .page import drawn_cells
        from .plots import map_cells, plot_map

        if self._cells is None:
            raise ValueError(
                "A study that was loaded, or made from a model, holds no cells: use study.apply_to(files)."
            )
        _, rows, found = drawn_cells(self.model, self.populations, self._cells.X)
        positions, labels = map_cells(rows)
        return plot_map(positions, found, self._names, labels, axes)

    def plot_conditions(
        self,
        condition: str | None = None,
        *,
        pair: str | None = None,
        covariate: str | None = None,
        metadata: Any = None,
        axes: Any = None,
    ) -> np.ndarray:
        """Plot the proportions of two conditions as box plots, a panel for each population.

        Points are samples, and lines join those of a pair. Panels are in the order of the q-values of
        `compare`, which takes the same arguments.
        """
        from .plots import plot_conditions

        given: dict[str, Any] = {"pair": pair, "covariate": covariate, "metadata": metadata}
        table, sides = self.compare(condition, **given), self._sides(condition, None, **given)
        return plot_conditions(self._composition, sides, table, axes)

    @property
    def _markers(self) -> list[str]:
        names = short_markers(self._origin.markers)
        return names or [f"marker {number}" for number in range(self.model.n_features_in_)]

    @property
    def _names(self) -> list[Any]:
        """Names of the populations, or numbers; those of kernels begin with k."""
        if self.populations is None:
            return [f"k{kernel}" for kernel in range(len(self.model.means_))]
        return self.populations.display_names

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str | None = None,
        condition: str | None = None,
        pair: str | None = None,
        covariate: str | None = None,
    ) -> str:
        """Return the page of the study, one HTML file that fetches nothing, and write it to `path`.

        With a condition, given here or to `compose`, it has the differences of `compare` and box plots.
        """
        from .page import study_page

        design = _design_of(condition, pair, covariate) or self._design
        compared = None
        if design is not None:
            names = asdict(design)
            names["other"] = names.pop("reference")
            compared = design, self._sides(metadata=None, **names), self.compare(**names)
        n_samples = len(self.samples)
        title = title or f"Composition of {n_samples} sample{'' if n_samples == 1 else 's'}"
        page = study_page(self, title, compared)
        if path is not None:
            with replacing(path) as file:
                file.write(page.encode())
        return page

    def provenance(self) -> list[tuple[str, str]]:
        """Return how the study was made, as pairs of name and text."""
        origin, model = self._origin, self.model
        found = [("cells", f"{sum(int(size) for size in self._samples.sizes):,}")]
        if origin.files:
            found = [("files", f"{len(origin.files)}: {listed(origin.files, MOST_LISTED)}"), *found]
        if origin.column is not None or len(origin.files) == len(self.samples):
            found.append(("samples by", "file" if origin.column is None else f"column {origin.column}"))
        found += [
            ("markers", listed(origin.markers or [f"{model.n_features_in_} without names"], MOST_LISTED)),
            ("scale", in_words(origin.preparation)),
        ]
        if origin.joined:
            found.append(("joined", "; ".join(" + ".join(names) for names in origin.joined)))
        if self._is_new:
            return [*found, ("model", "fitted to other samples; kernels unchanged")]
        prior = "none" if model.weight_prior is None else str(model.weight_prior)
        chosen = "given" if self._search is None else search_in_words(self._search)
        return [
            *found,
            ("kernels", f"{len(model.means_)}, {chosen}"),
            ("prior on the weights", prior),
            ("passes of EM", f"{model.n_iter_}{'' if model.converged_ else ', not converged'}"),
            ("seed", str(model.random_state)),
        ]

    def __repr__(self) -> str:
        found = f"{len(self.model.means_)} kernels"
        if self.populations is not None:
            found = f"{len(self.populations)} population{'' if len(self.populations) == 1 else 's'}"
        n_samples = len(self.samples)
        return f"<Study of {n_samples} sample{'' if n_samples == 1 else 's'} and {found}>"

    def _repr_html_(self) -> str:
        """Return the table of proportions, in percent with intervals, and two heat maps."""
        from ..plots.style import new_figure
        from .plots import heat_size, percent

        found = self._composition
        texts = np.vectorize(percent, otypes=[object])
        shares, low, high = map(texts, (found.proportions, found.lower, found.upper))
        cells = shares + "<br><small>" + low + " – " + high + "</small>"
        heads = ([html.escape(str(name)) for name in names] for names in (found.names, found.populations))
        table = pandas().DataFrame(cells, *heads).iloc[:_MOST_SHOWN, :_MOST_SHOWN]
        page = f"<p>{html.escape(repr(self)[1:-1])}, in percent with 95 % intervals</p>"
        page += table.to_html(escape=False)
        try:
            # Not by pyplot: a notebook would show the figure twice.
            for name, plot, lines, columns in (
                ("proportions", self.plot, self.samples, found.populations),
                ("markers", self.plot_markers, found.populations, self._markers),
            ):
                figure = new_figure(*heat_size(lines, columns))
                plot(figure.subplots())
                file = io.BytesIO()
                figure.savefig(file, format="png", bbox_inches="tight")
                picture = base64.b64encode(file.getvalue()).decode()
                page += f'<img alt="{name}" src="data:image/png;base64,{picture}">'
        except ImportError:  # without matplotlib, show the table alone
            pass
        return page

    # ---------------------------------------------------------------- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study, but no cells, to a file for `skmix.load`.

        The file has the proportions with their intervals, so that they need not be computed again.
        """
        if self._is_new:
            raise ValueError("A study of new samples has no fit of its own: save the study of the fit.")
        merged = self.populations
        fields = {
            "model": record_of(self.model),
            "populations": None
            if merged is None
            else {
                "of_kernels": merged.of_kernels,
                "tree": merged.tree,
                "names": {str(number): name for number, name in merged.names.items()},
            },
            "samples": self._samples.names,
            "results": self._reference.to_dict(),
            "origin": asdict(self._origin),
            "search": self._search,
            "metadata": self._metadata,
            "design": None if self._design is None else asdict(self._design),
        }
        write_file(path, *pack(Record("Study", fields)))


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
    fields = record.fields
    model, merged = estimator_of(fields["model"]), fields["populations"]
    if not isinstance(model, SharedKernelMixture):
        raise ValueError(f"a study cannot have a {type(model).__name__} inside")
    populations = None
    if merged is not None:
        names = {int(number): name for number, name in merged["names"].items()}
        populations = Populations(merged["of_kernels"], merged["tree"], names)
        populations.check(len(model.means_))
    names, found, design = fields["samples"].tolist(), Study(model, populations), fields.get("design")
    if fields["results"] is not None:
        found._reference.restore(fields["results"])
    origin, search, metadata = Origin(**fields["origin"]), fields["search"], fields["metadata"]
    design, prepared = None if design is None else Design(**design), found._origin.preparation
    found._set_origin(names, origin, search, metadata, design)
    if len(origin.markers) not in (0, model.n_features_in_):
        raise ValueError(f"it names {len(origin.markers)} markers, but its model has {model.n_features_in_}")
    _check_words(origin, search, metadata, len(names), prepared)
    if design is not None:
        sides_of(np.array(names, dtype=object), metadata, design)
    return found


def _check_words(origin: Any, search: Any, metadata: Any, n_samples: int, prepared: Preparation) -> None:
    """Raise ValueError if a file says something malformed about the cells, the search or the samples.

    `prepared` is how the model prepares values.
    """
    texts = (origin.files, origin.markers, origin.notes)
    is_text = all(isinstance(part, tuple) and all(isinstance(text, str) for text in part) for part in texts)
    if not is_text or not isinstance(origin.column, str | None):
        raise ValueError("its files, column, markers and notes are not text")
    joined = origin.joined
    is_joined = isinstance(joined, tuple) and all(isinstance(names, tuple) for names in joined)
    if not is_joined or not all(isinstance(name, str) for names in joined for name in names):
        raise ValueError(f"its joined populations are {joined!r}, not tuples of names")
    if not isinstance(origin.preparation, dict) or preparation_of(origin.preparation) != prepared:
        raise ValueError(f"it says that cells were read as {origin.preparation!r}, unlike its model")
    if search is not None:
        numbers = [search[name] for name in ("lowest", "highest", "n_cells")]
        is_right = all(type(number) is int and number > 0 for number in numbers)
        if not is_right or not isinstance(search["criterion"], str):
            raise ValueError(f"its search is {search!r}")
    plain = (bool, int, float, str, type(None))
    for name, values in () if metadata is None else metadata.items():
        is_column = isinstance(values, list) and len(values) == n_samples
        if not is_column or not all(isinstance(value, plain) for value in values):
            raise ValueError(f"its metadata {name!r} is not a list of {n_samples} values")


def _design_of(
    condition: str | None, pair: str | None, covariate: str | None, reference: Any = None
) -> Design | None:
    for argument, value in (("pair", pair), ("covariate", covariate), ("reference", reference)):
        if condition is None and value is not None:
            raise ArgumentError(Argument(argument, value), " needs ", Argument("condition"), ".")
    return None if condition is None else Design(condition, pair, covariate, reference)


def _checked(metadata: Any, design: Design | None, samples: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Return the metadata of samples (L,) from `read_metadata`, after checking that they can be compared."""
    found = metadata_of(metadata, samples)
    if design is not None:
        sides_of(np.array(samples, dtype=object), found, design)
    return found


def search_in_words(search: Mapping[str, Any]) -> str:
    """Return how the number of kernels was chosen."""
    return f"chosen by AICc from {search['lowest']} to {search['highest']} on {search['n_cells']:,} cells"
