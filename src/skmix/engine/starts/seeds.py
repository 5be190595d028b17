"""Clusters of rows by k-means: seeds, and Lloyd's iterations on the host or on a device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from ..estep import host
from ..estep.inputs import Rows
from ..numbers import Array, as_float64, constant, is_numpy, namespace, pick
from ..records import FARTHEST, FloatArray, Frame
from ..threads import Workers

# Numbers in the rows and distances that k-means holds at a time, on the host and on a device.
_NUMBERS_AT_ONCE, _NUMBERS_ON_DEVICE = 1 << 20, 1 << 27
# Lloyd's iterations have converged when no centre moves by this squared distance in any feature: EM goes on.
_CONVERGED = 1e-3
# Most Lloyd iterations.
MOST_PASSES = 100

# From centres (K, M) to the sums (K, V) over the rows nearest to each, and the nearest centre (n,) of a row.
Pass = Callable[[Array], tuple[Array, Array]]


def draw_seeds(x: Array, first: Array, chances: Array) -> Array:
    """Draw seeds among rows x (n, M) by k-means++: the `first` (1, M), and one for each chance (q,).

    The host reads nothing of a device, so that it need not wait.
    """
    xp, squares, seeds = namespace(x), namespace(x).vecdot(x, x), [first]
    nearest = xp.vecdot(first, first) - 2.0 * (x @ first[0])
    nearest = xp.clip(squares + nearest, 0.0, None)
    for chance in chances:
        cumulative = nearest.cumsum(0)
        # With fewer distinct rows than seeds all distances are zero, and the last row is repeated.
        place = xp.searchsorted(cumulative[:-1], chance * cumulative[-1:], side="right")
        seeds.append(pick(x, place))
        distances = squares - 2.0 * (x @ seeds[-1][0]) + pick(squares, place)
        nearest = xp.minimum(nearest, xp.clip(distances, 0.0, None))
    return xp.concat(seeds)


def seeds_of(x: Array, n_seeds: int, random_state: np.random.RandomState) -> Array:
    """Draw K seeds (K, M) among rows x (n, M) by k-means++."""
    first = random_state.randint(x.shape[0])
    chances = as_float64(random_state.uniform(size=n_seeds - 1), x)
    return draw_seeds(x, x[first : first + 1], chances)


def lloyd(
    x: Array,
    masses: FloatArray | None,
    centres: Array,
    pool: Workers,
    *,
    most: int = MOST_PASSES,
    least_move: float = _CONVERGED,
) -> tuple[Array, Array]:
    """Return centres (K, M) after at most that many Lloyd iterations, and the nearest one (n,) of each row.

    Rows x (n, M) have masses (n,), or all the mass one. A centre without rows stays.
    """
    if is_numpy(x):
        step: Pass = partial(host.lloyd, rows_within(x, masses), pool)
    else:
        step = partial(_sums, _pieces(x, masses, centres.shape[0]))
    sums, nearest = step(centres)
    for _ in range(most):
        before, centres = centres, _means(sums, centres)
        if float(((centres - before) ** 2).max()) < least_move:
            break
        sums, nearest = step(centres)
    return centres, nearest


def rows_within(x: FloatArray, masses: FloatArray | None) -> Rows:
    """Return rows x (n, M) that are in the frame already, with masses (n,)."""
    ones = np.ones(x.shape[1])
    return Rows(x, None, masses, Frame(ones, 0.0 * ones, ones, FARTHEST * ones))


def _pieces(x: Array, masses: FloatArray | None, n_centres: int) -> list[tuple[Array, Array]]:
    """Return rows x (n, M) in pieces, each with the values (n, M + 1) to be summed: x and 1, by mass."""
    xp, (n_rows, n_features) = namespace(x), x.shape
    values = xp.concat([x, xp.ones_like(x[:, :1])], axis=1)
    if masses is not None:
        values = values * as_float64(masses, x)[:, None]
    size = max(1, (_NUMBERS_AT_ONCE if is_numpy(x) else _NUMBERS_ON_DEVICE) // (n_centres + n_features))
    return [(x[a : a + size], values[a : a + size]) for a in range(0, n_rows, size)]


def _sums(pieces: Sequence[tuple[Array, Array]], centres: Array) -> tuple[Array, Array]:
    """Do a pass over pieces of rows; see `Pass`."""
    xp = namespace(centres)
    numbers = constant(np.arange, centres.shape[0], example=centres)[:, None]
    halves = 0.5 * xp.vecdot(centres, centres)
    nearest = [xp.argmax(x @ centres.T - halves, axis=-1) for x, _ in pieces]
    sums = [
        xp.astype(near[None] == numbers, xp.float64) @ values
        for near, (_, values) in zip(nearest, pieces, strict=True)
    ]
    return reduce(operator.add, sums), xp.concat(nearest)


def _means(sums: Array, centres: Array) -> Array:
    """Return the means (K, M) of clusters from their sums (K, M + 1); without rows a centre stays."""
    xp, n_features = namespace(sums), centres.shape[-1]
    mass = sums[..., n_features:]
    filled = mass > 0
    return xp.where(filled, sums[..., :n_features] / xp.where(filled, mass, 1.0), centres)
