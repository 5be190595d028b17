"""The study of many samples: what was learnt about the populations they share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._errors import Argument, ArgumentError
from ..data import replacing
from ..engine.records import FloatArray
from ..model import Groups, SharedKernelMixture, progress_bar, warn_caller
from . import summary
from .comparison import Comparison, Design, asked_sides
from .description import Composition, Reference, pandas, places_of, shown
from .files import About, refuse_existing, write_study
from .labelling import predicted_columns, write_labels
from .markers import dividing_marker, names_after_change, profiles, short_markers
from .metadata import align, read_metadata
from .populations import Populations, alternatives_in_words, average_weights, checked_mixture
from .predicting import PredictMixin
from .reading import Origin, open_new_cells, preparation_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..plots.style import Axes

# Cells of new samples whose likelihood deviates by more standard deviations may be on another scale.
_FAR = 10.0


class Study(PredictMixin):
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
        The population of each kernel, the tree of merges, and names; printed as a table.
    about : About
        What is known of the samples besides: names, files, metadata, and some cells.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture, Study
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 1)) + np.repeat([0.0, 20.0, 20.0, 20.0], 50)[:, None]
    >>> model = SharedKernelMixture(2, init={"means": [[0.0], [20.0]]}, weight_prior=None)
    >>> model = model.fit(X, np.repeat(["a", "b"], 100))
    >>> Study(model).proportions["proportion"].round(3).tolist()
    [0.5, 0.5, 0.0, 1.0]
    """

    def __init__(
        self, model: SharedKernelMixture, populations: Populations | None = None, *, metadata: Any = None
    ) -> None:
        names = checked_mixture(model).classes_.tolist()
        if populations is not None:
            populations.check_model(model)
        markers = tuple(str(name) for name in getattr(model, "feature_names_in_", ()))
        origin = Origin((), None, markers, preparation_of(getattr(model, "recipe_", None)), ())
        known = align(read_metadata(metadata, {}), names)
        reference = Reference(model, populations)
        self._set(model, populations, reference, reference.samples, About(names, origin, metadata=known))

    @classmethod
    def of(cls, model: Any, populations: Populations | None, about: About) -> Study:
        """Return the study of a fitted mixture about whose samples more is known; for `compose` and files."""
        study = cls(model, populations)
        study._set(model, populations, study.reference, study._samples, about)
        return study

    def _set(
        self, model: Any, populations: Populations | None, reference: Reference, samples: Groups, about: About
    ) -> Study:
        """Set a fit with its populations, and samples of the fit or others; return the study."""
        if populations is not None and populations.weights is None:
            populations = replace(populations, weights=average_weights(model))
        self.model: SharedKernelMixture = model
        self.populations: Populations | None = populations
        self.reference, self._samples, self.about = reference, samples, about
        self._places = places_of(samples.names, about.samples, "samples")
        # Tables of `unusual` by alpha, with numbers of populations instead of names.
        self._judged: dict[float, DataFrame] = {}
        return self

    # ---------------------------------------------------------------- proportions

    @property
    def samples(self) -> list[Any]:
        """Names of the samples, in the order of the files."""
        return list(self.about.samples)

    @property
    def warnings(self) -> list[str]:
        """What is said of populations that may be one that shifts between samples."""
        sets = self.reference.alternatives
        return [alternatives_in_words(sets, self._names)] if sets else []

    @cached_property
    def _described(self) -> Composition:
        """Composition of the samples, with all intervals, in the order of their fit."""
        return self.reference.composition_of(self._samples)

    @cached_property
    def _sure(self) -> Composition:
        return self.reference.without_unsure(self._samples, self._described)

    def _shown(self, composition: Composition) -> Composition:
        """Return a composition in the order of the files, with the names of the populations."""
        composition = composition.take(self._places)
        return composition if self.populations is None else composition.renamed(self._names)

    @property
    def composition(self) -> Composition:
        """The proportions as arrays."""
        return self._shown(self._sure)

    @property
    def proportions(self) -> DataFrame:
        """Proportion of each population, or kernel, in each sample, with 95 % intervals.

        A table with a line for each sample and population: `sample`, `population` or `kernel` (its name or
        number), `proportion`, `lower` and `upper`, and `cells`, the number of cells of the sample or the sum
        of their weights. The proportions of a sample sum to one.

        Intervals describe the error of counting cells, given the populations as found and a fit that has
        converged, by the Fisher information about weights and kernels, as if no value were missing. With a
        prior on the weights, they are those of the posterior; with hierarchical weights, they ignore the
        prior, and are extended to a shrunken proportion that they miss. With `group_shift`, limits are NaN if
        kernels overlap so much that intervals would be too narrow.
        """
        return self.composition.frame()

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
        """Return a study of new samples: fit their weights, and their shifts; the kernels do not change.

        A warning names samples whose cells are so unlike the study's that their scale may be another.

        Parameters
        ----------
        samples : path, list of paths, table, AnnData, ndarray or what `open_rows` returns
            New samples with the markers of this study, on its scale; see `compose`. Columns of an array are
            the markers in order.
        metadata, condition, pair, covariate, reference : default=None
            Metadata of the new samples, and what to compare; see `compose`.
        **reading
            How to read them, as for `compose`. Files that have been compensated already need
            ``compensate=False``. Another scale than that of the fit is refused, unless the fit was to values
            in memory, which may have been scaled before.
        """
        pandas()  # report a missing library before any work
        design = Design.of(condition, pair, covariate, reference)
        table = read_metadata(metadata, design.columns if design else {})
        model, cells = open_new_cells(checked_mixture(self.model), self.about.origin, samples, **reading)
        about = About.of(cells, table, design)
        with progress_bar("composing", None):
            groups = Groups.fit(model, cells.source)
        about = replace(about, origin=replace(cells.origin, joined=self.about.origin.joined))
        new = Study.__new__(Study)._set(model, self.populations, self.reference, groups, about)
        judged = new.judged
        far = [] if judged is None else judged.loc[judged["z_likelihood"].abs() > _FAR, "sample"].tolist()
        if far:
            warn_caller(
                f"The cells of {shown(far)} are unlike those of the study: are they on the same scale, and "
                "compensated alike? Study.unusual has the numbers."
            )
        return new

    def compare(
        self,
        condition: Any = None,
        other: Any = None,
        *,
        pair: str | None = None,
        covariate: str | None = None,
        metadata: Any = None,
    ) -> Comparison:
        """Compare the proportions of samples of different conditions, or of two sets of samples.

        Samples are the units, not cells. Variances are those among samples, but at least half of what their
        numbers of cells imply. Intervals are Welch's, or those of a linear model of arcsin √proportion.

        Parameters
        ----------
        condition : str or sequence of samples, default=None
            A column of the metadata, or the samples of one side. Samples without a value are left out, with a
            warning. None compares what `compose` was told to.
        other : str or sequence of samples, default=None
            The reference, such as ``"control"``: the value of the condition from which differences are taken.
            None takes the reference of the study or, without one, the value that comes last in sorted order.
            If `condition` is a sequence, the samples of the other side. A single sample represents itself.
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
        Comparison
            With its `table` of differences, and its `plot`.
        """
        names, table = np.array(self.samples, dtype=object), self.about.metadata
        if metadata is not None:
            table = align(read_metadata(metadata, {}), self.samples)
        sides, design = asked_sides(names, table, self.about.design, condition, other, pair, covariate)
        return Comparison(self._shown(self._described), sides, design)

    def unusual(self, *, alpha: float = 0.05) -> DataFrame:
        """Return which samples have an unusual composition, or cells that the kernels describe badly.

        The proportions of each sample are compared with those of the others, and the log-likelihood of its
        cells with its expectation for a sample of this composition and size. New samples are compared with
        those of the fit, of which there must be at least five.

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
            for all populations together (Bonferroni); `log_likelihood`, the mean over its cells, its
            deviation from the expectation, `z_likelihood`, and `p_likelihood`, NaN after `partial_fit` and
            `add_class` and if cells had missing values; `p_adjusted`, for both tests (Bonferroni) of all
            samples (Holm); `unusual`; and the `reason`: proportions or cells, whichever is less probable.
        """
        if alpha not in self._judged:
            judged = self.reference.judge(self._samples, self._described, alpha)
            self._judged[alpha] = judged.iloc[self._places].reset_index(drop=True)
        table = self._judged[alpha].copy()
        if self.populations is not None and self.populations.names:
            table["population"] = [self._names[number] for number in table["population"]]
        return table

    @property
    def judged(self) -> DataFrame | None:
        """The table of `unusual`; None if the fit has too few samples."""
        return self.unusual() if self.reference.is_judged else None

    # ---------------------------------------------------------------- populations and labels

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
        """
        old, origin, fit = self.populations, self.about.origin, self.reference
        if old is None:
            raise ValueError("This study has kernels, but no populations to join.")
        groups = old.groups_to_join(populations)
        named = tuple(tuple(str(old.display_names[number]) for number in group) for group in groups)
        about = replace(self.about, origin=replace(origin, joined=(*origin.joined, *named)))
        return self._with(old, old.joined(fit.model, groups), about)

    def recut(self, n_populations: int) -> Study:
        """Return a study with more or fewer populations, by another cut of the tree of merges.

        The kernels do not change. Populations are numbered anew. Those that have names by markers get new
        ones; those that you renamed keep yours, unless they are divided. A finer cut may divide what was
        joined, and is no longer said to be. `describe` says which population the next cut divides, and which
        two the one before has as one.
        """
        if self.populations is None:
            raise ValueError("This study has kernels, but no populations to cut anew.")
        new, about = self.populations.recut(self.reference.model, n_populations), self.about
        if len(new) > len(self.populations):
            about = replace(about, origin=replace(about.origin, joined=()))
        return self._with(self.populations, new, about)

    def _with(self, old: Populations, new: Populations, about: About) -> Study:
        """Return a study with new populations of the same kernels, and their names."""
        fit, markers = self.reference, about.origin.markers
        if markers and (old.names or len(old) == 1):
            new = new.renamed(names_after_change(fit.model, old, new, markers))
        reference = Reference(fit.model, new)
        samples = reference.samples if self._samples is fit.samples else self._samples
        return Study.__new__(Study)._set(self.model, new, reference, samples, about)

    @property
    def kernel_shares(self) -> FloatArray:
        """Proportions (L, K) of the kernels in each sample."""
        return self.reference.kernels_of(self._samples)[self._places]

    @property
    def cuts(self) -> list[str]:
        """What the next finer cut of the tree of merges divides, and what the next coarser one joins."""
        populations, said = self.populations, list[str]()
        if populations is None:
            return said
        for n, text in ((len(populations) + 1, "{} splits by {}"), (len(populations), "{} are one")):
            sets = populations.divided_at(n)
            if sets is None:
                continue
            names = dict.fromkeys(self._names[populations.of_kernels[kernels[0]]] for kernels in sets)
            texts = [f"population {name}" if isinstance(name, int) else name for name in names]
            marker = self.markers[dividing_marker(self.reference.model, *sets)]
            n_cut = n if len(names) == 1 else n - 1
            said.append(f"at {n_cut}, {text.format(' and '.join(texts), marker)}")
        return said

    def label_cells(
        self,
        target: Any,
        samples: Any = None,
        *,
        probabilities: bool = True,
        name: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the population, or kernel, of each cell into a table, an AnnData or copies of FCS files.

        Cells of the study's samples are labelled with the weights and shifts of their sample, which is known
        by the name of the file, or by the column that named the samples of the study; cells of other or
        unknown samples, with averages over the samples. ``skmix predict`` gives the same labels.

        Parameters
        ----------
        target : path or AnnData
            A table (``.csv``, ``.tsv``, ``.parquet``, text also with ``.gz``) for the `sample`, the
            population and its probabilities, such as ``p_CD3⁺``; an AnnData of these cells, for a column of
            ``obs`` and probabilities in ``obsm``; or a folder for copies of FCS files with one more channel.
        samples : array-like of shape (n, M), default=None
            The cells, as for `SharedKernelMixture.fit`; None takes those of the study, unless it was loaded.
        probabilities : bool, default=True
            Whether to write the probability of each population to tables and AnnData.
        name : str, default=None
            Name of the column or channel; None uses ``population`` or ``kernel``.
        overwrite : bool, default=False
            Whether to replace files, or columns of the AnnData, that exist.
        """
        if samples is None:
            if self.about.cells is None:
                problem = "a study that was loaded, or made from a model, holds no cells. Give their files."
                raise ArgumentError(Argument("samples"), f" is missing: {problem}")
            samples = self.about.cells.source
        model = self.reference.model_of(self._samples, self.model)
        how: Any = {"probabilities": probabilities, "name": name, "overwrite": overwrite}
        write_labels(model, self.populations, self.about.origin.column, samples, target, **how)

    def predictions(self, samples: Any, *, why: bool = False, **reading: Any) -> dict[str, np.ndarray]:
        """Return what the study says of each cell, as the columns (n,) of a table, as ``skmix predict`` does.

        `samples` are cells as in `label_cells`, which gives the same labels; `why` adds the columns of
        `skmix.report.Reasons.in_words`; `reading` are `text` and `damaged` of `open_rows`. The columns are
        ``population`` or ``kernel`` and the others of `skmix.report.predictions`.
        """
        model, column = self.reference.model_of(self._samples, self.model), self.about.origin.column
        return predicted_columns(model, self.populations, column, samples, why=why, **reading)

    # ---------------------------------------------------------------- descriptions and pictures

    def describe(self) -> dict[str, Any]:
        """Return a summary of the study as plain values, ready for JSON."""
        table, sizes = self.judged, self._samples.sizes[self._places]
        unusual = [None] * len(sizes) if table is None else table["unusual"].tolist()
        described = summary.describe(self.reference, self.populations, self.about, sizes, unusual)
        return described | {"cuts": self.cuts, "warnings": self.warnings}

    def provenance(self) -> list[tuple[str, str]]:
        """Return how the study was made, as pairs of name and text."""
        return summary.provenance(self.reference, self.about, sum(map(int, self._samples.sizes)))

    @property
    def markers(self) -> list[str]:
        """Short names of the markers."""
        names = short_markers(self.about.origin.markers)
        return names or [f"marker {number}" for number in range(self.model.n_features_in_)]

    @property
    def _names(self) -> list[Any]:
        """Names of the populations, or numbers; those of kernels begin with k."""
        if self.populations is None:
            return [f"k{kernel}" for kernel in range(len(self.model.means_))]
        return self.populations.display_names

    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot the proportions as a heat map that marks unusual samples and what is unusual in them."""
        from .plots import plot_proportions

        return plot_proportions(self.composition, self.judged, axes)

    def plot_markers(self, axes: Axes | None = None) -> Axes:
        """Plot how far the mean of each population, or kernel, is from that of all cells, in their SDs."""
        from .plots import plot_markers

        deviations = profiles(self.model, self.populations).deviations
        return plot_markers(deviations, self._names, self.markers, axes)

    def plot_map(self, axes: Axes | None = None) -> Axes:
        """Plot at most 3000 cells by their first two principal components, coloured by population."""
        from .plots import drawn_cells, map_cells, plot_map

        if self.about.cells is None:
            raise ValueError(
                "A study that was loaded, or made from a model, holds no cells: use study.apply_to(files)."
            )
        _, rows, populations = drawn_cells(self.model, self.populations, self.about.cells.X)
        positions, labels = map_cells(rows)
        return plot_map(positions, populations, self._names, labels, axes)

    def to_html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        title: str | None = None,
        comparison: Comparison | None = None,
    ) -> str:
        """Return the page of the study, with a comparison or that of `compose`, and write it to `path`."""
        from .page import study_page

        if comparison is None and self.about.design is not None:
            comparison = self.compare()
        page = study_page(self, title, comparison)
        if path is not None:
            with replacing(path) as file:
                file.write(page.encode())
        return page

    def __repr__(self) -> str:
        parts = f"{len(self.model.means_)} kernels"
        if self.populations is not None:
            parts = f"{len(self.populations)} population{'' if len(self.populations) == 1 else 's'}"
        n_samples = len(self.samples)
        return f"<Study of {n_samples} sample{'' if n_samples == 1 else 's'} and {parts}>"

    def _repr_html_(self) -> str:
        from .plots import notebook_view

        return notebook_view(self)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the study, but no cells, to a file for `skmix.load`.

        It has the proportions with their intervals. A file that exists needs `overwrite`.
        """
        if self._samples is not self.reference.samples:
            raise ValueError("A study of new samples has no fit of its own: save the study of the fit.")
        refuse_existing(Path(path), overwrite=overwrite)
        write_study(path, self.reference, self.populations, self.about)
