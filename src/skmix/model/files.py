"""Model files: safetensors with a JSON header. Reading one never runs code.

`pack` splits a value into JSON and named arrays, and `write_file` writes both; `read_file` and `unpack` are
the inverse. JSON types are stored as they are. Any other value is an object with the keys ``is`` (one of the
kinds in `unpack`) and ``of``, so that the encoding is unambiguous.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._version import __version__
from ..data.read import existing
from ..data.write import replacing

FORMAT = "skmix"
VERSION = 2
"""Incremented when older versions would misread a file; they refuse unknown attributes and parameters."""


@dataclass(frozen=True)
class Record:
    """The fields of an object, and the name of its class."""

    kind: str
    fields: dict[str, Any]


# ---------------------------------------------------------------- files


def write_file(path: str | os.PathLike[str], content: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Write content (JSON, all numbers finite) and arrays of numbers to one file, atomically."""
    from safetensors.numpy import save

    # safetensors copies memory as it is, ignoring strides.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    header = {"format": FORMAT, "version": VERSION, "library": __version__, "content": content}
    header["digest"] = _digest(header, arrays)
    # One key, since safetensors does not fix the order of several: equal models must give equal files.
    data = save(arrays, metadata={FORMAT: json.dumps(header, allow_nan=False)})
    with replacing(path) as file:
        file.write(data)


def read_file(path: str | os.PathLike[str]) -> tuple[Any, dict[str, np.ndarray], int]:
    """The content, arrays and version of a file; raise ValueError if this version cannot read it."""
    from safetensors import SafetensorError, safe_open

    name = os.fspath(existing(path))
    with open(name, "rb"):
        pass  # raises an OSError with the file's name, which safetensors' errors lack
    try:
        # Checks that the index of arrays is valid and accounts for every byte of the file.
        with safe_open(name, framework="np") as file:
            header = _header(name, (file.metadata() or {}).get(FORMAT))
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{name} is not a skmix model, or it is truncated or damaged ({error}).") from None
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{name} has arrays of a type that NumPy does not support ({error}).") from None
    try:
        intact = header.pop("digest", None) == _digest(header, arrays)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise ValueError(f"{name} is damaged: its content does not match its digest.")
    return header.get("content"), arrays, header["version"]


def _header(name: str, text: str | None) -> dict[str, Any]:
    """The parsed header of a file that this version of skmix can read."""
    if text is None:
        raise ValueError(f"{name} is not a skmix model: it is a safetensors file without the skmix header.")
    try:
        header: dict[str, Any] = json.loads(text)
        version = header["version"]
        valid = header["format"] == FORMAT and type(version) is int and version >= 1
    except (ValueError, RecursionError, KeyError, TypeError):
        valid = False
    if not valid:
        raise ValueError(f"{name} has a damaged header.")
    if version > VERSION:
        raise ValueError(
            f"{name} is in version {version} of the format, written by skmix "
            f"{str(header.get('library'))[:20]}; this skmix reads up to version {VERSION}. "
            "Install a newer skmix."
        )
    return header


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True, allow_nan=False).encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------- values


def pack(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Split a value into JSON content and arrays, which are named by their path in the value.

    `value` may hold None, bool, int, float, str, NumPy scalars, arrays of numbers or strings, and lists,
    tuples, dicts with string keys and `Record` of these. A range becomes a list. Raise TypeError with the
    path of any other value.
    """
    arrays: dict[str, np.ndarray] = {}
    # An array that occurs twice is stored once, by its id; a reference keeps the id from being reused.
    stored: dict[int, tuple[np.ndarray, Any]] = {}

    def to_json(value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else _tagged("float", repr(value))
        if kind in (list, range):
            return [to_json(item, f"{path}.{i}".lstrip(".")) for i, item in enumerate(value)]
        if kind is tuple:
            return _tagged("tuple", to_json([*value], path))
        if kind is dict:
            return _tagged("dict", fields_to_json(value, path))
        if kind is Record:
            return _tagged("record", value.kind) | {"fields": fields_to_json(value.fields, path)}
        if isinstance(value, np.generic):
            return _tagged("scalar", array_to_json(np.asarray(value), path))
        if isinstance(value, np.ndarray):
            if id(value) not in stored:
                stored[id(value)] = value, array_to_json(np.asarray(value), path)
            return stored[id(value)][1]
        raise TypeError(
            f"{path} is a {kind.__module__}.{kind.__qualname__}; a model file can only hold arrays, numbers, "
            "strings, lists, tuples and dicts."
        )

    def fields_to_json(values: dict[Any, Any], path: str) -> dict[str, Any]:
        for key in values:
            if type(key) is not str:
                raise TypeError(f"{path} has the key {key!r}; keys in a model file must be strings.")
        return {key: to_json(value, f"{path}.{key}".lstrip(".")) for key, value in values.items()}

    def array_to_json(array: np.ndarray, path: str) -> Any:
        kind = "array"
        if array.dtype == object:
            return _tagged("objects", to_json(array.ravel().tolist(), path)) | {"shape": list(array.shape)}
        if array.dtype.kind == "U":
            characters = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", ndmin=1)
            shape = (*array.shape, array.dtype.itemsize // 4)
            kind, array = "text", characters.view(np.uint32).reshape(shape)
        elif array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise TypeError(
                f"{path} is an array of {array.dtype}; a model file can only hold arrays of strings and of "
                "numbers of up to 64 bits."
            )
        elif array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:
            # Keep the memory order: the rounding of sums, and so the last digits of scores, depends on it.
            kind, array = "fortran array", array.T
        name = path or "value"
        while name in arrays:
            name += "'"
        # np.ascontiguousarray would make a scalar one-dimensional.
        arrays[name] = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C")
        return _tagged(kind, name)

    return to_json(value, ""), arrays


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {"is": kind, "of": content}


def unpack(content: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that `pack` split; raise ValueError if content or arrays are malformed."""
    made: dict[tuple[str, str], np.ndarray] = {}

    def fields_of(fields: dict[str, Any]) -> dict[str, Any]:
        return {key: from_json(value) for key, value in fields.items()}

    def array_of(kind: str, name: str) -> np.ndarray:
        if name not in arrays:
            raise ValueError(f"the array {name!r} is missing")
        if (kind, name) not in made:
            array = arrays[name].copy()
            array = array.T if kind == "fortran array" else array
            made[kind, name] = _text(array) if kind == "text" else array
        return made[kind, name]

    def from_json(content: Any) -> Any:
        match content:
            case list():
                return [from_json(item) for item in content]
            case {"is": "float", "of": "nan" | "inf" | "-inf" as number}:
                return float(number)
            case {"is": "scalar", "of": {"is": "array" | "text"} as inner} if from_json(inner).shape == ():
                return from_json(inner)[()]
            case {"is": "tuple", "of": list(items)}:
                return tuple(from_json(items))
            case {"is": "dict", "of": dict(fields)}:
                return fields_of(fields)
            case {"is": "record", "of": str(kind), "fields": dict(fields)}:
                return Record(kind, fields_of(fields))
            case {"is": "objects", "of": list(items), "shape": list(shape)} if _is_shape(shape, len(items)):
                return np.fromiter(from_json(items), dtype=object, count=len(items)).reshape(shape)
            case {"is": "array" | "fortran array" | "text" as kind, "of": str(name)}:
                return array_of(kind, name)
            case dict():
                shown = repr(content)
                raise ValueError(
                    f"it has a malformed value {shown if len(shown) < 60 else f'{shown[:57]}...'}"
                )
            case _:
                return content

    value = from_json(content)
    unused = set(arrays) - {name for _, name in made}
    if unused:
        raise ValueError(f"it has arrays that no value refers to: {sorted(unused)[:3]}")
    return value


def _is_shape(shape: list[Any], n_items: int) -> bool:
    valid = len(shape) <= 8 and all(type(n) is int and n >= 0 for n in shape)
    return valid and math.prod(shape) == n_items


def _text(codes: np.ndarray) -> np.ndarray:
    """Strings (…) from their code points (…, length)."""
    if codes.dtype != np.uint32 or codes.ndim < 1 or codes.shape[-1] < 1:
        raise ValueError(f"it has characters of type {codes.dtype} and shape {codes.shape}")
    if codes.size and codes.max() > 0x10FFFF:
        raise ValueError(f"it has the character code {codes.max()}, which does not exist")
    strings: np.ndarray = codes.view(np.dtype(("U", codes.shape[-1]))).reshape(codes.shape[:-1])
    return strings
