"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, zarr, safetensors and onnx are imported on first use.
"""

from .models import Record, decode, encode, read, write
from .sources import Source, open_rows, source_of
from .writing import replacing

__all__ = [
    "Record",
    "Source",
    "decode",
    "encode",
    "open_rows",
    "read",
    "replacing",
    "source_of",
    "write",
]
