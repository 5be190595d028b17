"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, zarr, flowio, safetensors and onnx are imported on first use.
"""

from .encoding import ColumnError
from .models import Record, pack, read_file, unpack, write_file
from .opening import files_of, is_elsewhere, open_rows, source_of
from .sources import Source, prepare
from .writing import replacing, writable_folder, write_columns

__all__ = [
    "ColumnError",
    "Record",
    "Source",
    "files_of",
    "is_elsewhere",
    "open_rows",
    "pack",
    "prepare",
    "read_file",
    "replacing",
    "source_of",
    "unpack",
    "writable_folder",
    "write_columns",
    "write_file",
]
