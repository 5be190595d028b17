"""Blocks of rows where the loop expects rows: every E-step is one `reduce` over the blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compute.threads import Workers, workers
from ..covariances import Structure, structure_of
from ..model import BoolArray, Factor, FloatArray, Parameters, Statistics
from .blocks import Answer, Block, Blocks
from .frame import Frame
from .gaps import Patterns
from .memory import Rows
from .summary import Survey, survey

Sums = tuple[Statistics, FloatArray]
Centres = tuple[BoolArray, FloatArray]


@dataclass(frozen=True)
class Surveyed:
    """Coded blocks, and what a look at all of them found: what `fit` takes for rows.

    Attributes
    ----------
    blocks : Blocks
        Their labels are classes.
    survey : Survey
        Of the same blocks.
    seed : int
        Seed of its sample.
    """

    blocks: Blocks
    survey: Survey
    seed: int = 0

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.blocks.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return self.blocks.feature_names

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged."""
        return self.blocks.reduce(work, merge)

    def coded(self, classes: np.ndarray) -> Surveyed:
        """Return the blocks with classes for labels."""
        return Surveyed(self.blocks.coded(classes), self.survey.coded(classes), self.seed)

    def take(self, columns: list[int]) -> Surveyed:
        """Return the blocks with some of their features: another look where rows may have none of them."""
        own = self.blocks.take(columns)
        found = survey(own, self.seed) if self.survey.gaps else self.survey.take(columns)
        return Surveyed(own, found, self.seed)


def surveyed(blocks: Blocks) -> Surveyed:
    """Return the blocks with their survey, which is a pass unless they have it."""
    return blocks if isinstance(blocks, Surveyed) else Surveyed(blocks, survey(blocks))


class Scattered:
    """Rows in blocks. It stands where `Rows` stands in the loop.

    Parameters
    ----------
    X : Surveyed
        Coded blocks; rows that say nothing are passed over.
    n_classes : int
        L, and one more when rows without a label are a class.
    frame : Frame
        Coordinates of the loop.
    structure : Structure
        Covariance structure.
    expect : callable
        From rows, parameters, factor, structure, threads, centres and moments to statistics and origins.
    """

    def __init__(
        self, X: Surveyed, n_classes: int, frame: Frame, structure: Structure, expect: Callable[..., Sums]
    ) -> None:
        self.frame = frame
        self.structure = structure
        self.n_rows, self.n_features = X.survey.n_rows, X.n_features
        self.n_classes = n_classes
        self.class_sizes = X.survey.class_sums(X.survey.sizes, n_classes)
        self._observed = X.survey.class_sums(X.survey.observed, n_classes)
        self._X = X
        self._expect = expect

    def log_volume(self) -> FloatArray:
        """Return for each class (L,) what the frame adds to its log-likelihood."""
        volumes: FloatArray = self._observed @ np.log(self.frame.scale)
        return volumes

    def expect(
        self, parameters: Parameters, factor: Factor, pool: Workers, centres: Centres | None, moments: bool
    ) -> Sums:
        """Return the statistics of all blocks, and the origins (R, K, M) of their moments."""
        work = Collect(
            self._expect,
            parameters,
            factor,
            self.frame,
            self.structure.name,
            self.n_classes,
            self._X.survey.gaps,
            centres,
            moments,
            pool.n_jobs,
            pool,
        )
        return self._X.reduce(work, add)


@dataclass(frozen=True)
class Collect:
    """The E-step of a block: the same steps as for rows in memory.

    Attributes
    ----------
    expect : callable
        See `Scattered`.
    parameters, factor, frame, covariance_type, n_classes
        What the loop has, with a column of weights for rows without a label.
    gaps : bool
        Whether any block has gaps: all of them must take their moments about the same origins.
    centres, moments
        As for `engine.passes.expect`.
    n_jobs : int
        Number of threads where the block is.
    pool : Workers or None
        The loop's own threads; they stay behind when the work is sent away.
    """

    expect: Callable[..., Sums]
    parameters: Parameters
    factor: Factor
    frame: Frame
    covariance_type: str
    n_classes: int
    gaps: bool
    centres: Centres | None
    moments: bool
    n_jobs: int
    pool: Workers | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __call__(self, block: Block) -> Sums:
        """Return the statistics of a block, and the origins of its moments."""
        if self.pool is not None:
            return self._collect(block, self.pool)
        with workers(self.n_jobs) as pool:
            return self._collect(block, pool)

    def _collect(self, block: Block, pool: Workers) -> Sums:
        structure = structure_of(self.covariance_type)
        block = block.telling() if self.gaps or block.weights is not None else block
        if not len(block.X):
            return self._nothing(structure)
        classes = block.y
        if classes is not None:
            # Rows without a label are the last class; where there are none of them, nothing changes.
            classes = np.where(classes < 0, classes.dtype.type(self.n_classes - 1), classes)
        rows: Rows | Patterns
        if self.gaps:
            codes = np.zeros(len(block.X), dtype=np.int64) if classes is None else classes
            rows = Patterns(block.X, codes, self.n_classes, self.frame, structure, block.weights)
        else:
            rows = Rows(block.X, classes, self.n_classes, self.frame, structure, block.weights)
        return self.expect(rows, self.parameters, self.factor, structure, pool, self.centres, self.moments)

    def _nothing(self, structure: Structure) -> Sums:
        """Return the statistics of no row, about any origins."""
        shape = self.parameters.means.shape
        n_sums = structure.of(self.parameters.covariances).n_sums(shape[-1])
        none = Statistics(
            np.zeros((shape[0], self.n_classes)),
            np.zeros((*shape[:2], self.n_classes)),
            np.zeros(shape),
            np.zeros((*shape[:2], n_sums)),
        )
        return none, np.full(shape, np.nan)


def add(a: Sums, b: Sums) -> Sums:
    """Return the sums of both blocks; neither is changed, since a cluster may need them again."""
    (left, origins), (right, others) = a, b
    total = Statistics(
        left.log_likelihood + right.log_likelihood,
        left.mass + right.mass,
        left.first + right.first,
        left.second + right.second,
    )
    # A block without rows knows no origins.
    return total, np.where(np.isnan(origins), others, origins)
