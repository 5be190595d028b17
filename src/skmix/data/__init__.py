"""Files, tables, arrays and clusters as rows, with labels and recipes; and arrays as files.

pyarrow, flowio and Dask are imported on first use.
"""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from .opening import open_rows
    from .problems import ColumnError
    from .recipe import Recipe
    from .source import Source
    from .write import write_columns

__all__ = ["ColumnError", "Recipe", "Source", "open_rows", "write_columns"]
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "ColumnError": "problems",
        "Recipe": "recipe",
        "Source": "source",
        "open_rows": "opening",
        "write_columns": "write",
    },
)
