"""Python values as JSON and named arrays, and back. Nothing that is read can name code to run.

JSON's own types stand for themselves. Everything else is an object with the keys ``is`` (one of the kinds
below) and ``of``, so that no value can be mistaken for another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Kinds of number that the file format has: bool, int, unsigned int, float.
_KINDS = "biuf"
_LARGEST_CHARACTER = 0x10FFFF


@dataclass(frozen=True)
class Record:
    """A named group of values: what an object of some class is made of.

    Attributes
    ----------
    kind : str
        Name of the class; what it means is for the reader to look up.
    fields : dict
        Values by name.
    """

    kind: str
    fields: dict[str, Any]


def encode(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Take a value apart into what JSON can hold and arrays.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, range, NumPy scalars and arrays of numbers or strings, and lists, tuples,
        dicts with string keys and `Record` of these. An array that occurs twice is kept once.

    Returns
    -------
    content : object
        For JSON.
    arrays : dict of str to ndarray
        Arrays of numbers, C-contiguous and little-endian, by the path under which each occurs first.

    Raises
    ------
    TypeError
        For anything else, with its path.
    """
    writer = _Writer()
    return writer.encode(value, ""), writer.arrays


def decode(content: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Put together what `encode` took apart; ValueError when it did not come from there."""
    reader = _Reader(arrays)
    value = reader.decode(content)
    unused = set(arrays) - reader.used
    if unused:
        raise ValueError(f"it has arrays that belong nowhere: {sorted(unused)[:3]}")
    return value


class _Writer:
    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        # By identity; the arrays are kept alive here, so that no other can have theirs.
        self.seen: dict[int, tuple[np.ndarray, Any]] = {}

    def encode(self, value: Any, path: str) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else _tagged("float", repr(value))
        if isinstance(value, np.generic):
            return _tagged("scalar", self._array(np.asarray(value), path))
        if isinstance(value, np.ndarray):
            return self._array_once(value, path)
        if type(value) is list:
            return self._items(value, path)
        if type(value) is tuple:
            return _tagged("tuple", self._items(value, path))
        if type(value) is range:
            return _tagged("range", [value.start, value.stop, value.step])
        if type(value) is dict:
            return _tagged("dict", self._fields(value, path))
        if isinstance(value, Record):
            return _tagged("record", value.kind) | {"fields": self._fields(value.fields, path)}
        raise TypeError(
            f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which has no place in a model "
            "file; arrays, numbers, strings, lists, tuples and dicts have."
        )

    def _items(self, values: list[Any] | tuple[Any, ...], path: str) -> list[Any]:
        return [self.encode(value, _join(path, str(i))) for i, value in enumerate(values)]

    def _fields(self, values: dict[Any, Any], path: str) -> dict[str, Any]:
        wrong = [key for key in values if type(key) is not str]
        if wrong:
            raise TypeError(f"{path} has the key {wrong[0]!r}; in a model file keys are strings.")
        return {key: self.encode(value, _join(path, key)) for key, value in values.items()}

    def _array_once(self, array: np.ndarray, path: str) -> Any:
        if id(array) not in self.seen:
            self.seen[id(array)] = array, self._array(array, path)
        return self.seen[id(array)][1]

    def _array(self, array: np.ndarray, path: str) -> Any:
        array = np.asarray(array)
        if array.dtype.kind in _KINDS and array.dtype.itemsize <= 8:
            # The order in memory is kept: sums, and with them the last digits of results, may depend on it.
            turned = array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous
            kind = "turned array" if turned else "array"
            return _tagged(kind, self._add(array.T if turned else array, path))
        if array.dtype.kind == "U":
            characters = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", ndmin=1)
            codes = characters.view(np.uint32).reshape(*array.shape, -1)
            return _tagged("text", self._add(codes, path))
        if array.dtype == object:
            items = [self.encode(item, _join(path, str(i))) for i, item in enumerate(array.ravel().tolist())]
            return _tagged("objects", items) | {"shape": list(array.shape)}
        raise TypeError(
            f"{path} is an array of {array.dtype}, which has no place in a model file; "
            "numbers of up to 64 bits and strings have."
        )

    def _add(self, array: np.ndarray, path: str) -> str:
        name = path or "value"
        while name in self.arrays:
            name += "'"
        # A copy in C order; np.ascontiguousarray would give a scalar an axis.
        self.arrays[name] = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C")
        return name


class _Reader:
    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.used: set[str] = set()
        self.made: dict[tuple[str, str], np.ndarray] = {}
        self.kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": self._float,
            "scalar": self._scalar,
            "tuple": lambda content: tuple(self._items(content["of"])),
            "range": self._range,
            "dict": lambda content: self._fields(content["of"]),
            "record": self._record,
            "objects": self._objects,
            "array": lambda content: self._array_once(content, lambda array: array.copy()),
            # Turned after copying, so that the memory has the order it had.
            "turned array": lambda content: self._array_once(content, lambda array: array.copy().T),
            "text": lambda content: self._array_once(content, _text),
        }

    def decode(self, content: Any) -> Any:
        if isinstance(content, list):
            return self._items(content)
        if not isinstance(content, dict):
            return content
        kind = content.get("is")
        if not isinstance(kind, str) or kind not in self.kinds or "of" not in content:
            raise ValueError(f"it has a value of unknown kind {kind!r}")
        return self.kinds[kind](content)

    def _items(self, content: Any) -> list[Any]:
        if not isinstance(content, list):
            raise ValueError(f"it has {_short(content)} where a list belongs")
        return [self.decode(item) for item in content]

    def _fields(self, content: Any) -> dict[str, Any]:
        if not isinstance(content, dict):
            raise ValueError(f"it has {_short(content)} where named values belong")
        return {key: self.decode(value) for key, value in content.items()}

    def _float(self, content: dict[str, Any]) -> float:
        if content["of"] not in ("nan", "inf", "-inf"):
            raise ValueError(f"it has {_short(content['of'])} where nan or an infinity belongs")
        return float(content["of"])

    def _scalar(self, content: dict[str, Any]) -> Any:
        array = self.decode(content["of"])
        if not isinstance(array, np.ndarray) or array.shape != ():
            raise ValueError("it has an array where a single number belongs")
        return array[()]

    def _range(self, content: dict[str, Any]) -> range:
        limits = content["of"]
        if not isinstance(limits, list) or len(limits) != 3 or any(type(n) is not int for n in limits):
            raise ValueError(f"it has {_short(limits)} where a range's three integers belong")
        return range(*limits)

    def _record(self, content: dict[str, Any]) -> Record:
        if not isinstance(content["of"], str):
            raise ValueError(f"it has {_short(content['of'])} where the name of a class belongs")
        return Record(content["of"], self._fields(content.get("fields")))

    def _objects(self, content: dict[str, Any]) -> np.ndarray:
        items, shape = self._items(content["of"]), content.get("shape")
        if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"it has {_short(shape)} where the shape of an array belongs")
        if math.prod(shape) != len(items) or len(shape) > 8:
            raise ValueError(f"it has {len(items)} objects for an array of shape {tuple(shape)}")
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            array[i] = item
        return array.reshape(shape)

    def _array_once(self, content: dict[str, Any], make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        name = content["of"]
        if not isinstance(name, str) or name not in self.arrays:
            raise ValueError(f"the array {_short(name)} is missing")
        self.used.add(name)
        key = content["is"], name
        if key not in self.made:
            self.made[key] = make(self.arrays[name])
        return self.made[key]


def _text(codes: np.ndarray) -> np.ndarray:
    """Return strings from their characters' numbers, on a last axis."""
    if codes.dtype != np.uint32 or codes.ndim < 1 or codes.shape[-1] < 1:
        raise ValueError("it has characters that are not numbered as strings are")
    if codes.size and codes.max() > _LARGEST_CHARACTER:
        raise ValueError(f"it has the character number {codes.max()}, which does not exist")
    strings: np.ndarray = codes.copy().view(np.dtype(("U", codes.shape[-1]))).reshape(codes.shape[:-1])
    return strings


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {"is": kind, "of": content}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(value: Any) -> str:
    """Return a value for an error message, which a damaged file must not make endless."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
