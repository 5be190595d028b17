"""EM on a stream: statistics of the past fade, those of each new batch come in.

Online EM (Cappé and Moulines, 2009): the average statistics s of a row are moved towards those of the newest
batch, s ← (1 − η) s + η s_batch with η = t^−decay in the t-th batch, and the M-step is that of batch EM.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..compute.threads import workers
from ..covariances import structure_of
from ..em import expect, regulariser_of
from ..model import FloatArray, IntArray, Options, Parameters, Statistics
from ..rules.likelihood import maximise
from ..sources import Setting, open_source
from ..sources.gaps import complete
from ..sources.summary import Frame


@dataclass(frozen=True)
class Running:
    """What a stream has left behind.

    Attributes
    ----------
    frame : Frame
        Coordinates of the statistics, from the first batch.
    statistics : Statistics
        Of one row, on average, with a leading axis of one start.
    origins : ndarray of shape (1, K, M)
        What their moments are taken about.
    n_batches : int
        Batches seen.
    n_rows : float
        Rows seen, or the sum of their weights.
    """

    frame: Frame
    statistics: Statistics
    origins: FloatArray
    n_batches: int
    n_rows: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as arrays and numbers by name."""
        parts = (self.frame, self.statistics)
        arrays = {name: value for part in parts for name, value in vars(part).items()}
        return {**arrays, "origins": self.origins, "n_batches": self.n_batches, "n_rows": self.n_rows}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Running:
        """Return the record that `to_dict` described."""
        frame = Frame(**{field.name: values[field.name] for field in fields(Frame)})
        statistics = Statistics(**{field.name: values[field.name] for field in fields(Statistics)})
        return cls(frame, statistics, values["origins"], values["n_batches"], values["n_rows"])


def resume(
    parameters: Parameters, frame: Frame, covariance_type: str, n_batches: int, n_rows: float
) -> Running:
    """Return the past that a fitted model stands for: the statistics at which it is the maximum.

    Parameters
    ----------
    parameters : Parameters
        One model with its `class_prior`, in the data's coordinates.
    frame : Frame
        Coordinates for the stream; features get the variances of the model's density.
    covariance_type : str
        Covariance structure.
    n_batches : int
        How many batches its rows count as.
    n_rows : float
        How many rows it was fitted to.
    """
    structure = structure_of(covariance_type)
    inside = frame.enter(parameters.batch(), structure)
    n_kernels, n_features = inside.means.shape[1:]
    assert inside.class_prior is not None
    mass = inside.weights * inside.class_prior[:, None]
    # The last column is for rows without a label.
    mass = np.concatenate([mass, np.zeros_like(mass[..., :1])], axis=-1)
    terms = structure.terms_of(inside.covariances, n_kernels, n_features)
    statistics = Statistics(
        np.zeros((1, mass.shape[-1])),
        mass,
        np.zeros_like(inside.means),
        mass.sum(axis=-1)[..., None] * terms,
    )
    # The frame of a model knows no variances of features, which floors are relative to: its density has them.
    share = mass.sum(axis=-1)[0]
    centre = share @ inside.means[0]
    full = structure.to_full(inside.covariances, n_kernels, n_features)[0]
    within = np.einsum("k,kdd->d", share, full)
    variance = within + share @ (inside.means[0] - centre) ** 2
    return Running(replace(frame, variance=variance), statistics, inside.means, n_batches, n_rows)


def absorb(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    running: Running | Frame,
    options: Options,
    *,
    decay: float,
    row_weights: FloatArray | None = None,
) -> tuple[Parameters, Running, float]:
    """Let one batch change the parameters.

    Parameters
    ----------
    X : ndarray of shape (n, M)
        The batch; NaN where a value is missing.
    classes : ndarray of shape (n,)
        Class of each row, −1 for none.
    parameters : Parameters
        One model with its `class_prior`, in the data's coordinates.
    running : Running or Frame
        The past; for the first batch, the frame to use.
    options : Options
        Structure, floor, priors, threads.
    decay : float
        How fast the past fades, above 0.5 and at most 1.
    row_weights : ndarray of shape (n,), optional
        Positive weights of the rows.

    Returns
    -------
    parameters : Parameters
        The new model.
    running : Running
        The past with this batch.
    log_likelihood : float
        Of the batch before it changed anything.
    """
    structure = structure_of(options.covariance_type)
    frame = running if isinstance(running, Frame) else running.frame
    inside = frame.enter(parameters.batch(), structure)
    regulariser = regulariser_of(options, frame, structure, inside.means.shape[1])
    covariances, factor = structure.raised(inside.covariances, regulariser.floor)
    inside = Parameters(inside.weights, inside.means, covariances, inside.class_prior)
    source = open_source(X, classes, row_weights)
    with workers(options.n_jobs) as pool:
        setting = Setting(frame.reaching(X), structure, pool)
        collected, origins = expect(source, inside, factor, setting)
    everything = np.arange(X.shape[1])
    centres = inside.means
    newest = complete(collected, everything, origins, centres, inside, structure)
    n_new = source.summary.total
    volume = float(np.sum(source.summary.observed @ np.log(frame.scale)))
    log_likelihood = float(collected.log_likelihood.sum()) - volume
    if isinstance(running, Frame):
        average, n_batches, n_rows = _times(newest, 1.0 / n_new), 1, n_new
    else:
        n_batches, n_rows = running.n_batches + 1, running.n_rows + n_new
        step = n_batches**-decay
        past = complete(running.statistics, everything, running.origins, centres, inside, structure)
        average = _times(past, 1.0 - step)
        average.add(_times(newest, step / n_new))
    # Priors count imagined rows, so the statistics are given the size of all that was seen.
    following, next_factor, _ = maximise(_times(average, n_rows), centres, inside, structure, regulariser)
    if options.freeze == "weights":
        following = replace(following, weights=inside.weights)
    if options.freeze == "kernels" or not next_factor.usable[0]:
        following = replace(following, means=inside.means, covariances=inside.covariances)
    after = Running(frame, average, centres, n_batches, n_rows)
    return frame.leave(following, structure).take(0), after, log_likelihood


def _times(statistics: Statistics, factor: float) -> Statistics:
    """Return statistics multiplied by a number."""
    return Statistics(
        statistics.log_likelihood * factor,
        statistics.mass * factor,
        statistics.first * factor,
        statistics.second * factor,
    )
