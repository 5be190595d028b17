"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, zarr, flowio, safetensors and onnx are imported on first use.
"""

from .encoding import encode_frame
from .joined import prepare
from .models import Record, decode, encode, read, write
from .opening import files_of, is_elsewhere, open_rows, source_of
from .sources import Source
from .tables import labels_like, read_rows
from .writing import replacing

__all__ = [
    "Record",
    "Source",
    "decode",
    "encode",
    "encode_frame",
    "files_of",
    "is_elsewhere",
    "labels_like",
    "open_rows",
    "prepare",
    "read",
    "read_rows",
    "replacing",
    "source_of",
    "write",
]
