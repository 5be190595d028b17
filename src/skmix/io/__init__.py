"""Files: rows in blocks for the engine, tables by column names, models and ONNX graphs.

This package only reads and writes. pyarrow, zarr, flowio, safetensors and onnx are imported on first use.
"""

from .fcs import Events, read_fcs, write_fcs
from .joined import JoinedRows
from .models import Record, decode, encode, read, write
from .opening import is_elsewhere, open_rows, source_of
from .sources import FcsRows, Source
from .tables import check_writable, write_columns
from .writing import replacing

__all__ = [
    "Events",
    "FcsRows",
    "JoinedRows",
    "Record",
    "Source",
    "check_writable",
    "decode",
    "encode",
    "is_elsewhere",
    "open_rows",
    "read",
    "read_fcs",
    "replacing",
    "source_of",
    "write",
    "write_columns",
    "write_fcs",
]
