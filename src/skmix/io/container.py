"""The file itself: safetensors, with a JSON header of our own among its metadata.

safetensors is a length, a JSON index of arrays and their bytes; reading it runs no code. Under the key
``skmix`` of its metadata lies our header: the format's version, the content that `encode` made, and a digest
of the content and all arrays, so that damage is noticed wherever it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from .writing import replacing

FORMAT = "skmix"
VERSION = 1
"""Raised when an older reader would misunderstand a file. Attributes and parameters may be added without."""

# safetensors allows no longer index.
_LONGEST_INDEX = 100_000_000
_LENGTH_BYTES = 8


def write(path: str | os.PathLike[str], content: Any, arrays: Mapping[str, np.ndarray], library: str) -> None:
    """Write content and arrays as one file, which appears whole or not at all.

    Parameters
    ----------
    path : path-like
        The file to make or to replace.
    content : object
        For JSON, without NaN or infinities.
    arrays : mapping of str to ndarray
        Arrays of numbers.
    library : str
        Version of the library, for the curious.
    """
    from safetensors.numpy import save

    # safetensors writes memory as it lies.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "library": library,
        "digest": _digest(VERSION, content, arrays),
        "content": content,
    }
    # One key: safetensors writes several in no fixed order, and equal models should be equal files.
    data = save(arrays, metadata={FORMAT: json.dumps(header, allow_nan=False)})
    with replacing(path) as file:
        file.write(data)


def read(path: str | os.PathLike[str]) -> tuple[Any, dict[str, np.ndarray]]:
    """Read what `write` wrote.

    Returns
    -------
    content : object
        As given to `write`.
    arrays : dict of str to ndarray
        As given to `write`; read-only.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it is foreign, truncated, damaged or of a later version of the format.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(_LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        room = size - _LENGTH_BYTES
        if room < 2 or length > _LONGEST_INDEX:
            _refuse(name, "is no skmix model")
        if length > room:
            _refuse(name, f"is no skmix model, or truncated: it has {size} bytes")
        index = file.read(length)
        header, end = _header(name, index)
        # Before the arrays are read: what the index declares must be what there is.
        if end != room - length:
            _refuse(name, f"is truncated or damaged: {room - length} bytes of arrays, not {end}")
        data = start + index + file.read(end)
    arrays = _arrays(name, data)
    content = header.get("content")
    try:
        intact = header.get("digest") == _digest(header["version"], content, arrays)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        _refuse(name, "is damaged: its content does not have the digest it was written with")
    return content, arrays


def _header(name: str, index: bytes) -> tuple[dict[str, Any], int]:
    """Return our header, checked for format and version, and how many bytes of arrays the index declares."""
    try:
        # The tag of any foreign file may lie here; JSON's parser says so by these.
        entries = json.loads(index)
        text = entries.pop("__metadata__")[FORMAT]
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        _refuse(name, "is no skmix model, or its header is damaged")
    try:
        header = json.loads(text, parse_constant=_no_constant)
        kind, version = header["format"], header["version"]
        end = max([0, *(entry["data_offsets"][1] for entry in entries.values())])
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        _refuse(name, "has a damaged header")
    if kind != FORMAT or type(version) is not int or version < 1 or type(end) is not int:
        _refuse(name, "has a damaged header")
    if version > VERSION:
        _refuse(
            name,
            f"is in version {version} of the format, written by skmix {str(header.get('library'))[:20]}; "
            f"this skmix reads up to version {VERSION}. Install a newer one",
        )
    return header, end


def _arrays(name: str, data: bytes) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        # KeyError: a type of number that NumPy does not have.
        raise ValueError(f"{name} has a damaged index of arrays: {error}.") from None


def _digest(version: int, content: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of everything that has a meaning."""
    digest = hashlib.sha256(json.dumps([version, content], sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _refuse(name: str, problem: str) -> NoReturn:
    raise ValueError(f"{name} {problem}.")
