"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, zarr, flowio, safetensors and onnx are imported on first use.
"""

from .encoding import encode_frame
from .models import Record, decode, encode, read, write
from .opening import is_elsewhere, open_rows, source_of
from .sources import Source
from .writing import replacing

__all__ = [
    "Record",
    "Source",
    "decode",
    "encode",
    "encode_frame",
    "is_elsewhere",
    "open_rows",
    "read",
    "replacing",
    "source_of",
    "write",
]
