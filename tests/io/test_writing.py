"""Files appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from skmix.io.writing import is_device, replacing, write_columns


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_beside_and_renamed_into_place(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")
    with replacing(target) as file:
        file.write(b"new")
        file.flush()
        assert target.read_text() == "old"
        assert len(names(tmp_path)) == 2
    assert target.read_text() == "new"
    assert names(tmp_path) == ["result.txt"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")

    def write_half() -> None:
        with replacing(target) as file:
            file.write(b"ne")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["result.txt"]


def test_a_file_that_cannot_replace_its_target_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.mkdir()
    with pytest.raises(OSError, match="result"), replacing(target) as file:
        file.write(b"new")
    assert names(tmp_path) == ["result"]


def test_a_link_stays_and_the_file_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "v3.skmix").write_text("old")
    (tmp_path / "latest.skmix").symlink_to("v3.skmix")
    with replacing(tmp_path / "latest.skmix") as file:
        file.write(b"new")
    assert (tmp_path / "latest.skmix").is_symlink()
    assert (tmp_path / "v3.skmix").read_text() == "new"
    assert names(tmp_path) == ["latest.skmix", "v3.skmix"]


def test_what_is_not_a_regular_file_is_written_to(tmp_path: Path) -> None:
    """A pipe stands for the devices, which a test should not put at risk."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(pipe) as file:
            file.write(b"new")
        assert os.read(reading, 10) == b"new"
        assert pipe.is_fifo()
        # A link to it, as /dev/stdout is: its real path may be the name of no file.
        (tmp_path / "link").symlink_to(pipe)
        write_columns(tmp_path / "link", {"a": np.array([1])})
        assert os.read(reading, 10) == b"a\n1\n"
        assert names(tmp_path) == ["link", "pipe"]
    finally:
        os.close(reading)


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
