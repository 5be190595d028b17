"""k-means in compiled code: sums over the rows that are nearest to each centre.

The nearest centre is the most likely kernel if all kernels are spheres of one size, so these are passes of
`compiled` in which each row counts for that kernel only.
"""

from __future__ import annotations

import numpy as np

from ..compute.simd import LANES
from ..compute.threads import Workers
from ..model import Factor, FloatArray, IntArray
from ..structures import structure_of
from .compiled import BlockSums, Job, Likeliest, flat, prepare, run
from .reference import Kernels, Rows


def nearest_job(rows: Rows, centres: FloatArray) -> Job:
    """Return a job that finds the nearest centre (K, M) of each row, and −½ times its squared distance."""
    means, none = centres[None], np.zeros((1, len(centres)))
    spheres = Factor(np.ones_like(means), none, np.ones(1, dtype=bool))
    kernels = Kernels(structure_of("spherical"), means, spheres, none, none[..., None])
    return prepare(rows, kernels, means, near=True)._replace(likeliest=Likeliest.empty(len(rows.X)))


class Clusters:
    """Rows x (N, M), with masses (N,), that are summed by their nearest of K centres."""

    def __init__(self, x: FloatArray, masses: FloatArray | None, n_centres: int, pool: Workers) -> None:
        self._rows = Rows(x, None, masses, np.ones(x.shape[1]), np.zeros(x.shape[1]))
        self._pool = pool

    def sums(self, centres: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return sums (K, M + 1) of the rows nearest to centres (K, M) and of their masses, and which (N,).

        Of equally near centres, the first one has the row.
        """
        job, (n_centres, n_features) = nearest_job(self._rows, centres), centres.shape
        # The length of a row is the same for all centres: without that term no digits are lost.
        n_padded, n_blocks = job.sizes.padded_kernels, job.sizes.n_blocks
        step = -(-n_features // LANES) * LANES
        sizes = job.sizes._replace(terms=n_features, step=step, moments=step)
        whitener = job.model.whitener.reshape(n_padded, -1)[:, :-1]
        sums = BlockSums(mass=np.zeros(n_blocks * n_centres), moments=np.zeros(n_blocks * n_padded * step))
        job = job._replace(sizes=sizes, model=job.model._replace(whitener=flat(whitener)), with_moments=True)
        run(self._pool, n_blocks, job._replace(sums=sums))
        mass, moments = (each.reshape(n_blocks, -1).sum(axis=0) for each in (sums.mass, sums.moments))
        rows = moments.reshape(n_padded, step)[:n_centres, :n_features]
        return np.column_stack([rows, mass]), job.likeliest.kernel
