"""Former names of `compute.dask`; remove when nothing imports them."""

from .dask import ClusterError as ClusterError
from .dask import check_workers as check_workers
