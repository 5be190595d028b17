"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, flowio, safetensors and onnx are imported on first use.
"""

from .encoding import ColumnError
from .opening import open_rows
from .sources import Source
from .writing import write_columns

__all__ = ["ColumnError", "Source", "open_rows", "write_columns"]
