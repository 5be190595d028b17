"""Model files and files that replace others: values survive, and other files are named for what they are."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from safetensors import safe_open
from safetensors.numpy import save

from skmix import __version__, load
from skmix.data.write import is_device, replacing, write_columns
from skmix.model import saving
from skmix.model.files import FORMAT, VERSION, Record, pack, read_file, unpack, write_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_beside_and_renamed_into_place_unless_there_is_an_error(tmp_path: Path) -> None:
    target, folder = tmp_path / "result.txt", tmp_path / "folder"
    target.write_text("old")
    folder.mkdir()

    def write(place: Path, problem: str = "") -> None:
        with replacing(place) as file:
            file.write(b"new")
            file.flush()
            assert target.read_text() == "old"
            assert len(names(tmp_path)) == 3
            if problem:
                raise RuntimeError(problem)

    for place, error in (
        (target, "^halfway"),
        (folder, "folder is a folder: name a file in it"),
        (tmp_path / "no" / "a", "^There is no folder .*no[.]$"),
    ):
        with pytest.raises((RuntimeError, OSError), match=error):
            write(place, "halfway" if place == target else "")
        assert target.read_text() == "old"
        assert names(tmp_path) == ["folder", "result.txt"]
    write(target)
    assert target.read_text() == "new"
    assert names(tmp_path) == ["folder", "result.txt"]


def test_a_link_stays_and_the_file_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "v3.skmix").write_text("old")
    (tmp_path / "latest.skmix").symlink_to("v3.skmix")
    with replacing(tmp_path / "latest.skmix") as file:
        file.write(b"new")
    assert (tmp_path / "latest.skmix").is_symlink()
    assert (tmp_path / "v3.skmix").read_text() == "new"
    assert names(tmp_path) == ["latest.skmix", "v3.skmix"]


def test_a_file_that_is_open_as_a_stream_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As when the output of a command goes into a file."""
    handle = os.open(tmp_path / "output.txt", os.O_RDWR | os.O_CREAT)
    try:
        paths = [f"/dev/fd/{handle}", f"/dev/../dev/fd/{handle}"]
        if Path("/proc/self/fd").exists():
            paths.append(f"/proc/self/fd/{handle}")
        for path in paths:
            with replacing(path) as file:
                file.write(path.encode())
            assert os.pread(handle, 100, 0) == path.encode()
        write_columns(f"/dev/fd/{handle}", {"a": np.array([0.5])})
        assert os.pread(handle, 100, 0) == b"a\n0.5\n"
    finally:
        os.close(handle)
    assert names(tmp_path) == ["output.txt"]


def test_devices_are_those_that_cannot_be_replaced(tmp_path: Path) -> None:
    for device in ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"):
        assert is_device(device)
    (tmp_path / "output.txt").touch()
    (tmp_path / "dev").mkdir()
    for path in ("output.txt", "new", "", "dev/fd"):
        assert not is_device(tmp_path / path)
    assert not is_device("/dev/shm/new")


# ---------------------------------------------------------------- values


def there_and_back(value: Any) -> Any:
    content, arrays = pack(value)
    return unpack(json.loads(json.dumps(content, allow_nan=False)), arrays)


def same(one: Any, other: Any) -> bool:
    """Equality of values, types and memory order; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype == object:
            return all(map(same, one.ravel(), other.ravel()))
        return one.tobytes() == other.tobytes() and (not one.size or one.strides == other.strides)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Record):
        return one.kind == other.kind and same(one.fields, other.fields)
    if isinstance(one, (float, np.floating)):
        return bool(one == other) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)
NAMES = st.text(max_size=4)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from([np.float64(0.1), np.int32(7), np.str_("seven"), np.bool_(True), np.uint64(2**64 - 1)]),
    hnp.arrays(st.sampled_from(["f8", "f4", "f2", "i8", "u2", "?"]), SHAPES),
    hnp.arrays("U5", hnp.array_shapes(min_dims=0, max_dims=2)),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(NAMES, inner, max_size=3),
        st.builds(Record, NAMES, st.dictionaries(NAMES, inner, max_size=3)),
    ),
    max_leaves=8,
)


@given(values)
@example([math.inf, -math.inf, math.nan, -0.0, 10**30, "", [], (), {}])
@example((np.str_(""), np.array(["", "\U0010ffff"]), np.zeros((2, 0), "U3"), np.zeros((0, 3), order="F")))
@example((np.arange(6.0).reshape(2, 3).T, np.array([["a", 1], [None, 2.5]], dtype=object)))
@example((np.empty((0,), dtype=object), np.full((1,) * 8, "x", dtype=object)))
@example({"z": 1, "a": {"b": (1, [2.5, None])}, "is": "float", "of": "nan"})
@example({"a.b.c": np.zeros(1), "a": {"b.c": np.ones(2)}, "a.b": {"c": np.ones(3)}})
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert same(there_and_back(value), value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [0, print]}, r"a\.1 is a builtins\.builtin_function_or_method"),
        ({"a": {1: 2}}, "a has the key 1"),
        ({"a": np.zeros(2, dtype=complex)}, "a is an array of complex128"),
        ({"a": np.array([print])}, r"a\.0 is a builtins"),
        ({"a": np.datetime64("2020-01-01")}, "a is an array of datetime64"),
        (Record("kind", {"a": {2: 3}}), "a has the key 2"),
    ],
)
def test_values_that_cannot_be_encoded_are_named(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pack(value)


MALFORMED: list[dict[str, Any]] = [
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
]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, "malformed value") for content in MALFORMED),
        ({"is": "array", "of": "absent"}, "'absent' is missing"),
        ({"is": "text", "of": "row"}, r"characters of type float64 and shape \(3,\)"),
        ({"is": "text", "of": "codes"}, "character code 4294967295"),
        (["x" * 100, {"is": "tuple", "of": "x" * 100}], r"xxx\.\.\.$"),
        (3, "no value refers to"),
    ],
)
def test_content_that_pack_did_not_write_is_refused(content: Any, message: str) -> None:
    arrays = {"row": np.zeros(3), "codes": np.full((1, 2), 2**32 - 1, dtype=np.uint32)}
    with pytest.raises(ValueError, match=message):
        unpack(content, arrays)


# ---------------------------------------------------------------- files

CONTENT = {"name": "a", "value": 0.1, "list": [1, None, True, "ü"]}
ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.array(3, dtype=np.int64),
    "c": np.zeros((0, 2)),
    # Neither is in memory as it is written.
    "d": np.arange(6, dtype=np.int8).reshape(2, 3).T,
    "e": np.arange(8.0, dtype=np.float32)[::-2],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_file(tmp_path / "model.skmix", CONTENT, ARRAYS)
    return tmp_path / "model.skmix"


def test_what_is_written_is_read_also_by_safetensors(path: Path) -> None:
    content, arrays, version = read_file(path)
    assert version == VERSION
    assert content == CONTENT
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    with safe_open(path, framework="np") as file:
        np.testing.assert_array_equal(file.get_tensor("a"), ARRAYS["a"])
        described = json.loads(file.metadata()["skmix"])
    assert [described[name] for name in ("format", "version", "library")] == ["skmix", VERSION, __version__]
    # Equal content gives equal files.
    before = path.read_bytes()
    write_file(path, CONTENT, dict(reversed(ARRAYS.items())))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def file_of(index: Any, data: bytes = b"") -> bytes:
    """Return a file with a given index."""
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    return len(text).to_bytes(8, "little") + text + data


def header(**changes: Any) -> dict[str, str]:
    return {FORMAT: json.dumps({"format": FORMAT, "version": VERSION} | changes)}


def with_array(**described: Any) -> bytes:
    return file_of({"__metadata__": header(), "a": described}, b"\0" * 8)


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros(3))
    return buffer.getvalue()


NOT_A_MODEL = "is not a skmix model"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", NOT_A_MODEL),
        (b"a text that someone saved under the wrong name", NOT_A_MODEL),
        (pickle.dumps({"a": 1}), NOT_A_MODEL),
        (npz(), NOT_A_MODEL),
        ((2**40).to_bytes(8, "little") + b"{}", NOT_A_MODEL),
        ((90).to_bytes(8, "little") + b"{}", "truncated"),
        (file_of(b"[" * 100_000), NOT_A_MODEL),
        (file_of(b"\xff\xfe\x00"), NOT_A_MODEL),
        (save({"a": np.zeros(3)}), "without the skmix header"),
        (save({}, metadata={FORMAT: "[" * 100_000}), "damaged header"),
        (save({}, metadata=header(format="other")), "damaged header"),
        (save({}, metadata=header(version=True)), "damaged header"),
        (
            save({}, metadata=header(version=7, library="9.9")),
            f"version 7 .* skmix 9.9; .* version {VERSION}",
        ),
        (save({}, metadata=header(content=3, digest="0" * 64)), "digest"),
        (save({}, metadata={FORMAT: '{"format": "skmix", "version": 1, "content": NaN}'}), "digest"),
        (with_array(data_offsets=[0, 2**60]), "damaged"),
        (with_array(dtype="F64", shape=[2**62, 2**62], data_offsets=[0, 8]), "damaged"),
        (with_array(dtype="F8_E4M3", shape=[8], data_offsets=[0, 8]), "a type that NumPy does not support"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.skmix"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.skmix .*" + message):
        read_file(path)


@pytest.mark.parametrize(
    "change",
    [
        # Version 1 is one that the reader would accept: only the digest gives the change away.
        *(
            lambda arrays, more=more: (arrays, more)
            for more in ({"version": 1}, {"library": "1.2"}, {"a": 1})
        ),
        lambda arrays: (arrays | {"a": arrays["a"].reshape(3, 2)}, {}),
        lambda arrays: (arrays | {"a": arrays["a"].view(np.int64)}, {}),
        lambda arrays: (arrays | {"a": arrays["a"] + 1e-15}, {}),
        lambda arrays: ({name: array for name, array in arrays.items() if name != "c"}, {}),
        lambda arrays: ({name.upper(): array for name, array in arrays.items()}, {}),
    ],
)
def test_the_digest_covers_the_header_and_names_types_shapes_and_numbers(path: Path, change: Any) -> None:
    content, arrays, _ = read_file(path)
    with safe_open(path, framework="np") as file:
        described = json.loads(file.metadata()[FORMAT])
    changed, more = change(arrays)
    path.write_bytes(save(changed, metadata={FORMAT: json.dumps(described | more)}))
    with pytest.raises(ValueError, match=r"model\.skmix is damaged: its content does not match its digest"):
        read_file(path)
    path.write_bytes(save(arrays, metadata={FORMAT: json.dumps(described)}))
    assert read_file(path)[0] == content


def test_files_that_cannot_be_opened_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_file(tmp_path / "absent")
    with pytest.raises(OSError, match=tmp_path.name):
        read_file(tmp_path)


def test_a_file_with_settings_in_pairs_loads() -> None:
    """Of a version whose `tail` and `tol` were pairs, and whose `init` held `freeze`."""
    model = load(Path(__file__).parents[1] / "golden" / "paired_settings.skmix")
    assert (model.tail, model.degrees, model.tol, model.stopping) == ("t", 4.0, 0.1, "per-class")
    assert (model.freeze, sorted(model.init)) == ("kernels", ["covariances", "means"])
    X, y = np.array([[0.0], [0.25], [0.5], [5.0], [5.25], [5.5]]), [0, 0, 1, 1, 0, 1]
    assert model.score(X, y) == pytest.approx(-0.7079780712781548, rel=1e-9)
    # The fit goes on with these settings.
    assert_array_equal(model.fit(X, y).means_.ravel(), [0.25, 5.25])


def test_names_that_the_command_line_noted_in_metadata_load_as_attributes() -> None:
    """Of a version whose recipe was `preparation_`, and whose command line wrote into `metadata_`."""
    model = load(Path(__file__).parents[1] / "golden" / "noted_columns.skmix")
    assert (model.target_name_, model.weight_name_) == ("kind", "n")
    assert model.recipe_["columns"] == {"a": None, "color": ["blue", "red"]}
    assert model.quality_["training_accuracy"] == 1.0
    assert not hasattr(model, "metadata_")


def test_frozen_starts_of_feature_sets_load_with_their_setting() -> None:
    """A file of a version whose starts held `freeze`: here by its parameters alone."""
    start = {"means": [[0.0], [4.0]], "covariances": [[[1.0]], [[1.0]]], "freeze": "kernels"}
    plain = saving._as_plain_values({"init": [start, start], "tail": None})
    assert plain["freeze"] == "kernels"
    assert plain["init"] == [{name: start[name] for name in ("means", "covariances")}] * 2
