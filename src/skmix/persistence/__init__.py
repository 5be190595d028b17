"""Model files: arrays and a described structure in, one file out, and back. It knows no estimator."""

from .container import FORMAT, VERSION, read, write
from .files import replacing
from .values import Record, decode, encode

__all__ = ["FORMAT", "VERSION", "Record", "decode", "encode", "read", "replacing", "write"]
