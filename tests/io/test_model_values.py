"""Values survive being taken apart, and what never came from there is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skmix.io import Record, decode, encode


def there_and_back(value: Any) -> Any:
    content, arrays = encode(value)
    return decode(json.loads(json.dumps(content, allow_nan=False)), arrays)


def same(one: Any, other: Any) -> bool:
    """Equality of values, types and memory order; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if (
            one.dtype != other.dtype
            or one.shape != other.shape
            or (one.size and one.strides != other.strides)
        ):
            return False
        if one.dtype == object:
            return all(same(a, b) for a, b in zip(one.ravel(), other.ravel(), strict=True))
        return one.tobytes() == other.tobytes()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Record):
        return one.kind == other.kind and same(one.fields, other.fields)
    if isinstance(one, (float, np.floating)):
        return bool(one == other) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


numbers = st.one_of(
    hnp.arrays(
        st.sampled_from(["f8", "f4", "i8", "u2", "?"]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)
    ),
    hnp.arrays("U5", hnp.array_shapes(min_dims=0, max_dims=2)),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from([np.float64(0.1), np.int32(7), np.str_("seven"), np.bool_(True)]),
    numbers,
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.builds(Record, st.text(max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    ),
    max_leaves=8,
)


@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert same(there_and_back(value), value)


def test_values_at_the_ends_come_back() -> None:
    """Those that few random values are."""
    for value in (
        *(math.inf, -math.inf, math.nan, -0.0, 10**30, "", [], (), {}),
        *(
            np.array("seven"),
            np.str_(""),
            np.array(["", "\U0010ffff"]),
            np.zeros((2, 0), "U3"),
            np.float32(0.1),
        ),
        *(np.uint64(2**64 - 1), np.array(True), np.zeros((0, 3), order="F"), np.arange(6.0).reshape(2, 3).T),
        *(
            np.array([["a", 1], [None, 2.5]], dtype=object),
            np.empty((0,), dtype=object),
            np.full((1,) * 8, "x", dtype=object),
            np.float16([1.5]),
        ),
        {"z": 1, "a": {"b": (1, [2.5, None])}, "is": "float", "of": "nan"},
        Record("name", {"is": [True], "fields": Record("inner", {})}),
    ):
        assert same(there_and_back(value), value), value


def test_slices_and_foreign_byte_orders_are_read_rightly() -> None:
    array = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(there_and_back(array[:, ::2]), array[:, ::2])
    np.testing.assert_array_equal(there_and_back(array.astype(">f8")), array)
    text = np.array(["ä", "𝄞 clef"], dtype=">U9")
    np.testing.assert_array_equal(there_and_back(text), text)


def test_an_array_that_occurs_twice_is_kept_once_and_stays_one() -> None:
    array = np.arange(3.0)
    content, arrays = encode({"a": array, "b": [array, array.copy()]})
    assert len(arrays) == 2
    back = decode(content, arrays)
    assert back["a"] is back["b"][0]
    assert back["a"] is not back["b"][1]
    assert back["a"].flags.writeable
    back["a"][:] = 7.0
    assert next(iter(arrays.values())).tolist() == array.tolist() == [0.0, 1.0, 2.0]
    assert list(arrays) == ["a", "b.1"]


def test_paths_that_look_alike_do_not_collide() -> None:
    value: Any = {"a.b": np.zeros(1), "a": {"b": np.ones(2)}}
    assert list(encode(value)[1]) == ["a.b", "a.b'"]
    assert same(there_and_back(value), value)
    value = {"a.b.c": np.zeros(1), "a": {"b.c": np.ones(2)}, "a.b": {"c": np.ones(3)}}
    assert same(there_and_back(value), value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, print]}, r"a\.1 is a builtins\.builtin_function_or_method"),
        ({"a": {1: 2}}, "a has the key 1"),
        ({"a": np.zeros(2, dtype=complex)}, "a is an array of complex128"),
        ({"a": np.array([print])}, r"a\.0 is a builtins"),
        ({"a": np.datetime64("2020-01-01")}, "a is an array of datetime64"),
        ([1, {"b": (2, print)}], r"1\.b\.1 is a builtins"),
        (Record("kind", {"a": {2: 3}}), "a has the key 2"),
    ],
)
def test_what_has_no_place_is_named(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        encode(value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (content, "malformed value")
            for content in (
                {},
                {"is": "code", "of": "print()"},
                {"is": "float"},
                {"is": "float", "of": "__import__('os')"},
                {"is": "tuple", "of": 3},
                {"is": "dict", "of": [3]},
                {"is": "record", "of": 3, "fields": {}},
                {"is": "array", "of": {"a": 1}},
                {"is": "scalar", "of": {"is": "array", "of": "row"}},
                {"is": "objects", "of": [1], "shape": [10**12]},
                {"is": "objects", "of": [], "shape": [-1]},
                {"is": "objects", "of": [1], "shape": [1] * 9},
                {"is": "objects", "of": [1], "shape": [True]},
            )
        ),
        ({"is": "array", "of": "absent"}, "'absent' is missing"),
        ({"is": "text", "of": "row"}, r"characters of type float64 and shape \(3,\)"),
        ({"is": "text", "of": "codes"}, "character code 4294967295"),
        (["x" * 100, {"is": "tuple", "of": "x" * 100}], r"xxx\.\.\.$"),
        (3, "no value refers to"),
    ],
)
def test_what_encode_did_not_write_is_refused(content: Any, message: str) -> None:
    arrays = {"row": np.zeros(3), "codes": np.full((1, 2), 2**32 - 1, dtype=np.uint32)}
    with pytest.raises(ValueError, match=message):
        decode(content, arrays)
