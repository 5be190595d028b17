"""Files: rows that need not fit into memory, as blocks for the engine; models to files and back."""

from .files import MAPPED_BYTES, open_rows, source_of
from .models import FORMAT, VERSION, Record, decode, encode, read, write
from .sources import Source
from .writing import replacing

__all__ = [
    "FORMAT",
    "MAPPED_BYTES",
    "VERSION",
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
