"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, flowio, safetensors and onnx are imported on first use.
"""

from typing import TYPE_CHECKING

from .._parts import on_first_use

if TYPE_CHECKING:
    from ..data.problems import ColumnError
    from .opening import open_rows
    from .sources import Source
    from .writing import write_columns

__all__ = ["ColumnError", "Source", "open_rows", "write_columns"]
# `skmix.data` is made of modules of both packages.
__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "ColumnError": "opening",
        "Source": "sources",
        "open_rows": "opening",
        "write_columns": "writing",
    },
)
