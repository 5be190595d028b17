"""Files of data: what is written by the format's definition is read back, what is damaged is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
from numpy.testing import assert_array_equal

from skmix.datasets import load_mnist, read_idx


def idx_bytes(values: np.ndarray, code: int, letter: str) -> bytes:
    """Write an IDX file by hand, number by number, as its definition has it."""
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, code, values.ndim, *values.shape)
    return header + b"".join(struct.pack(f">{letter}", value) for value in values.ravel().tolist())


@pytest.mark.parametrize(
    ("code", "letter", "dtype"),
    [
        (0x08, "B", "uint8"),
        (0x09, "b", "int8"),
        (0x0B, "h", "int16"),
        (0x0C, "i", "int32"),
        (0x0D, "f", "float32"),
        (0x0E, "d", "float64"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_every_type_of_idx_file_is_read(
    tmp_path: Path, code: int, letter: str, dtype: str, compress: bool
) -> None:
    values = np.arange(24).reshape(2, 3, 4) * 5
    content = idx_bytes(values, code, letter)
    path = tmp_path / "values"  # the content says whether it is compressed, not the name
    path.write_bytes(gzip.compress(content) if compress else content)
    read = read_idx(path)
    assert read.dtype == np.dtype(dtype)
    assert read.dtype.isnative
    assert_array_equal(read, values)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an IDX file: it begins with nothing"),
        (b"label,x\n1,2\n", "is not an IDX file: it begins with 6c 61 62 65"),
        (b"\0\0\x07\x01\0\0\0\x01\0", "is not an IDX file"),
        (b"\0\0\x08\x02\0\0\0\x01", "ends within its header"),
        (b"\0\0\x08\x01\0\0\0\x03\1\2", "should have 3 bytes for shape \\(3,\\), but has 2"),
        (b"\0\0\x08\x01\0\0\0\x01\1\2", "should have 1 bytes for shape \\(1,\\), but has 2"),
        (b"\0\0\x0e\x02\xff\xff\xff\xff\0\0\0\x01\1\2", "but has 2"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01\1", mtime=0)[:-9], "is damaged"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01\1", mtime=0)[:-8] + bytes(8), "is damaged"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01\1", mtime=0)[:10] + b"\xff" * 20, "is damaged"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "damaged")


def write_mnist(folder: Path, n_train: int = 5, n_test: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Write a small database in the four files of the large one; two of them are compressed."""
    random = np.random.RandomState(0)
    n = n_train + n_test
    images, labels = random.randint(256, size=(n, 28, 28)), random.randint(10, size=n)
    for part, rows in {"train": slice(0, n_train), "t10k": slice(n_train, n)}.items():
        first = part == "train"
        for content, name in (
            (idx_bytes(images[rows], 8, "B"), f"{part}-images-idx3-ubyte"),
            (idx_bytes(labels[rows], 8, "B"), f"{part}-labels-idx1-ubyte"),
        ):
            path = folder / (f"{name}.gz" if first else name)
            path.write_bytes(gzip.compress(content) if first else content)
    return images, labels


def test_mnist_from_a_folder(tmp_path: Path) -> None:
    images, labels = write_mnist(tmp_path)
    data = load_mnist(tmp_path)
    assert data.train_images.dtype == np.uint8
    assert_array_equal(np.concatenate([data.train_images, data.test_images]), images)
    assert_array_equal(np.concatenate([data.train_labels, data.test_labels]), labels)
    assert len(data.test_images) == len(data.test_labels) == 3
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    # A file that is there both plain and compressed is read plain.
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"damaged")
    assert_array_equal(load_mnist(str(tmp_path)).test_labels, labels[5:])


def test_a_folder_that_lacks_a_file_or_mixes_them_up(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(4), 8, "B"))
    with pytest.raises(ValueError, match="images of shape \\(3, 28, 28\\) and labels of shape \\(4,\\)"):
        load_mnist(tmp_path)
    for flat in (np.zeros((3, 28), dtype=int), np.zeros((3, 1, 2, 2), dtype=int)):
        (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(3), 8, "B"))
        (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(flat, 8, "B"))
        with pytest.raises(ValueError, match=r"and labels of shape \(3,\) in .* do not match"):
            load_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="neither t10k-labels-idx1-ubyte nor t10k-labels"):
        load_mnist(tmp_path)


def test_without_a_folder_mnist_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, **options: object) -> tuple[np.ndarray, np.ndarray]:
        asked.append((name, options["version"]))
        pixels = np.zeros((60002, 784))
        pixels[60000:] = 7
        pixels[60001] = np.arange(784) % 256
        return pixels, np.array(["3"] * 60000 + ["9", "8"])

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    data = load_mnist()
    assert asked == [("mnist_784", 1)]
    assert data.train_images.shape == (60000, 28, 28)
    assert data.test_labels.tolist() == [9, 8]
    assert (data.train_labels == 3).all()
    assert len(data.train_labels) == 60000
    assert data.train_labels.dtype == np.int64
    assert data.train_images.dtype == data.test_images.dtype == np.uint8
    assert not data.train_images.any()
    assert (data.test_images[0] == 7).all()
    # Row after row.
    assert data.test_images[1, 1, :3].tolist() == [28, 29, 30]
