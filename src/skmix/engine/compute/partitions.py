"""Former names of `compute.dask`; remove when nothing imports them."""

from typing import Any

from .dask import (
    DaskBlocks as DaskBlocks,
)
from .dask import (
    check_kind as check_kind,
)
from .dask import (
    is_collection as is_collection,
)
from .dask import (
    map_rows as map_rows,
)
from .dask import (
    open_collections as open_collections,
)


def in_memory(*values: Any) -> tuple[Any, ...]:
    """Return the values of Dask collections; others as they are."""
    return tuple(value.compute() if is_collection(value) else value for value in values)
