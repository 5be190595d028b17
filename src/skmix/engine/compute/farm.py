"""Former names of `compute.dask`; remove when nothing imports them."""

from .dask import n_threads as n_threads
