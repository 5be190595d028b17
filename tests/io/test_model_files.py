"""Files of the right format are read; all others are named for what they are."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from skmix.io import models, read, write
from skmix.io.models import FORMAT, VERSION

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
    write(tmp_path / "model.skmix", CONTENT, ARRAYS, "1.2.3")
    return tmp_path / "model.skmix"


def file_of(index: Any, data: bytes = b"") -> bytes:
    """Return a file with a given index."""
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    return len(text).to_bytes(8, "little") + text + data


def header(**changes: Any) -> dict[str, str]:
    return {FORMAT: json.dumps({"format": FORMAT, "version": VERSION} | changes)}


def test_what_is_written_is_read(path: Path) -> None:
    content, arrays = read(path)
    assert content == CONTENT
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


def test_equal_content_gives_equal_files(path: Path) -> None:
    before = path.read_bytes()
    write(path, CONTENT, dict(reversed(ARRAYS.items())), "1.2.3")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_safetensors_reads_the_arrays(path: Path) -> None:
    """The file is what it says it is, to anyone else's reader too."""
    with safe_open(path, framework="np") as file:
        np.testing.assert_array_equal(file.get_tensor("a"), ARRAYS["a"])
        described = json.loads(file.metadata()["skmix"])
    assert described["format"] == "skmix"
    assert described["version"] == 1
    assert described["library"] == "1.2.3"


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
            "version 7 of the format, written by skmix 9.9; this skmix reads up to version 1",
        ),
        (save({}, metadata=header(content=3, digest="0" * 64)), "digest"),
        (save({}, metadata={FORMAT: '{"format": "skmix", "version": 1, "content": NaN}'}), "digest"),
        (file_of({"__metadata__": header(), "a": {"data_offsets": [0, 2**60]}}), "damaged"),
        (
            file_of(
                {
                    "__metadata__": header(),
                    "a": {"dtype": "F64", "shape": [2**62, 2**62], "data_offsets": [0, 8]},
                },
                b"\0" * 8,
            ),
            "damaged",
        ),
        (
            file_of(
                {"__metadata__": header(), "a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}},
                b"\0" * 8,
            ),
            "arrays of a type that NumPy does not support",
        ),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.skmix"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.skmix .*" + message):
        read(path)


@pytest.mark.parametrize("change", [{"version": 2}, {"library": "1.2.4"}, {"more": 1}])
def test_the_digest_covers_the_whole_header(
    path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 is one that the reader would accept: only the digest gives the change away."""
    monkeypatch.setattr(models, "VERSION", 2)
    content, arrays = read(path)
    with safe_open(path, framework="np") as file:
        described = json.loads(file.metadata()[FORMAT])
    path.write_bytes(save(arrays, metadata={FORMAT: json.dumps(described | change)}))
    with pytest.raises(ValueError, match="does not match its digest"):
        read(path)
    path.write_bytes(save(arrays, metadata={FORMAT: json.dumps(described)}))
    assert read(path)[0] == content


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays | {"a": arrays["a"].reshape(3, 2)},
        lambda arrays: arrays | {"a": arrays["a"].view(np.int64)},
        lambda arrays: arrays | {"a": arrays["a"] + 1e-15},
        lambda arrays: {name: array for name, array in arrays.items() if name != "c"},
        lambda arrays: {name.upper(): array for name, array in arrays.items()},
    ],
)
def test_the_digest_covers_names_types_shapes_and_numbers(path: Path, change: Any) -> None:
    arrays = read(path)[1]
    with safe_open(path, framework="np") as file:
        described = file.metadata()
    path.write_bytes(save(change(arrays), metadata=described))
    with pytest.raises(ValueError, match=r"model\.skmix is damaged: its content does not match its digest"):
        read(path)


def test_files_that_cannot_be_opened_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read(tmp_path / "absent")
    with pytest.raises(OSError, match=tmp_path.name):
        read(tmp_path)


@pytest.mark.slow
def test_a_flipped_bit_of_any_byte_and_lost_or_added_bytes_are_noticed(path: Path) -> None:
    """Spaces that pad the index may change to other white space; then the content is the same."""
    data = path.read_bytes()
    for i in range(len(data)):
        # Every bit is flipped in some bytes, and one of every byte.
        for damaged in (
            data[:i],
            data[:i] + data[i + 1 :],
            data[:i] + b"\0" + data[i:],
            data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :],
        ):
            path.write_bytes(damaged)
            try:
                content, arrays = read(path)
            except ValueError as error:
                assert str(path) in str(error)  # noqa: PT017
            else:
                assert content == CONTENT
                assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
