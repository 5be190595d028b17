"""Where a fit stands between two passes: enough to go on from there in another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .model import BoolArray, FloatArray, IntArray, Parameters
from .squarem import Leaps


@dataclass(frozen=True)
class Snapshot:
    """A batch of R starts after some passes, on the host.

    Attributes
    ----------
    parameters : Parameters
        Where each start is, in the coordinates of the frame; extrapolations aside.
    status : ndarray of shape (R,)
        A `Status` each.
    n_iter : ndarray of shape (R,)
        Passes made.
    previous : ndarray of shape (R, L)
        Log-likelihoods of the last pass, which the stopping rule compares the next ones with.
    latched : ndarray of shape (R, L)
        Classes that the stopping rule holds for settled.
    path : list of R ndarrays of shape (passes, L)
        As in `Result`, in the coordinates of the frame.
    leaps : Leaps or None
        Where the accelerator of an accelerated fit stands.
    """

    parameters: Parameters
    status: IntArray
    n_iter: IntArray
    previous: FloatArray
    latched: BoolArray
    path: list[FloatArray]
    leaps: Leaps | None = None


# Called after each pass with a function that takes the snapshot: whoever is not interested pays nothing. The
# function may be called at any time until the next call, also when a pass has failed.
Keep = Callable[[Callable[[], Snapshot]], None]


def take_later(
    everyone: Callable[[Parameters], Parameters],
    parameters: Parameters,
    active: IntArray,
    status: IntArray,
    n_iter: IntArray,
    previous: FloatArray,
    latched: BoolArray,
    path: list[list[FloatArray]],
    leaps: Leaps | None = None,
) -> Callable[[], Snapshot]:
    """Return a function that takes the snapshot of this moment, whenever it is called.

    What changes in place is copied now, and it is little; parameters are put together when they are wanted.

    Parameters
    ----------
    everyone : callable
        From parameters of the batch to those of all R starts, on the host.
    parameters : Parameters
        Of the batch.
    active : ndarray of shape (A,)
        Starts still in the batch.
    status, n_iter : ndarray of shape (R,)
        Of all starts.
    previous, latched : ndarray of shape (A, L)
        Of the batch.
    path : list of R lists of ndarrays of shape (L,)
        Log-likelihoods so far.
    leaps : Leaps, optional
        Of the batch.
    """
    status, n_iter, latched = status.copy(), n_iter.copy(), latched.copy()
    lengths = [len(passes) for passes in path]

    def among_all(values: np.ndarray) -> np.ndarray:
        """Return what the batch has among all starts; those that have left need none of it."""
        every = np.zeros((len(status), *values.shape[1:]), dtype=values.dtype)
        every[active] = values
        return every

    def take() -> Snapshot:
        shape = len(status), previous.shape[1]
        all_previous = np.full(shape, np.inf)
        all_previous[active] = previous
        traces = [
            np.reshape(passes[:length], (length, shape[1]))
            for passes, length in zip(path, lengths, strict=True)
        ]
        return Snapshot(
            everyone(parameters),
            status,
            n_iter,
            all_previous,
            among_all(latched),
            traces,
            None if leaps is None else leaps.map(everyone, among_all),
        )

    return take
