"""Files that commands read models from and write results into."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from skmix._extras import need
from skmix.cli._common import STANDARD, WRONG_USE, failing, guarded, stop
from skmix.cli._printing import print_json, say
from skmix.cli._progress import watching
from skmix.data import write_columns
from skmix.data.write import check_writable, is_device, replacing, writable_folder
from skmix.samples import Study, load

# Options that name tables to write.
_TABLES = ("--out", "--table", "--comparison")


def name_of(data: str) -> str:
    """What to call a table in a title."""
    return "standard input" if data == STANDARD else Path(data).name


def load_any(path: str) -> Any:
    """The model or the study in a file."""
    if path == STANDARD:
        stop("a model must be a file; - is for tables.")
    return load(path)


def load_model(path: str) -> Any:
    """The model in a file; of a study, the mixture inside."""
    loaded = load_any(path)
    return loaded.model if isinstance(loaded, Study) else loaded


# ---------------------------------------------------------------- writing


def check_places(
    places: Mapping[str, str | None], *, reading: Sequence[str | Path | None], default: str | None = None
) -> None:
    """Create the folders of files to write, by the options that name them; stop if one cannot be written.

    None may be a file to be read, or that of another option; tables need a known suffix, and pages libraries.
    Files are replaced, but not that of the option `default`, which the user did not name.
    """
    option_of: dict[Path, str] = {}
    for option, out in places.items():
        if out is None:
            continue
        with guarded(WRONG_USE), failing(f"cannot write {out}"):
            if option == "--html":
                need("jinja2", "A page needs")
                need("matplotlib", "Pictures of a page need")
            if out == STANDARD:
                continue
            place = Path(out)
            if option in _TABLES and check_writable(place) == ".parquet":
                need("pyarrow", "A Parquet file needs")
            folder = (Path(os.path.realpath(place)) if place.is_symlink() else place).parent
            if place.is_dir():
                stop(f"cannot write {out}: it is a folder. Name a file in it.")
            if folder.exists() and not folder.is_dir():
                stop(f"cannot write {out}: {folder} is not a folder.")
            for path in reading:
                if path is not None and place.exists() and os.path.exists(path) and place.samefile(path):
                    stop(f"cannot write {out}: it is also an input. Name another file.")
            other = option_of.setdefault(place.resolve(), option)
            if other != option:
                stop(f"{other} and {option} name the same file {out}.")
            if option == default and place.exists():
                stop(
                    f"{out} exists already. To replace it, say so with {option} {out}, or name another file."
                )
            if not is_device(place):
                writable_folder(folder)


def write_table(out: str, columns: Mapping[str, Any]) -> None:
    """Write columns into a file, or as CSV to standard output."""
    with failing(f"cannot write {out}"):
        write_columns(_standard_output() if out == STANDARD else out, columns)


def write_model(out: str, model: Any) -> None:
    """Write a model into a file or to standard output."""
    if out != STANDARD:
        with failing(f"cannot write {out}"):
            model.save(out, **({"overwrite": True} if isinstance(model, Study) else {}))
        return
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        write_bytes(out, (Path(folder) / "model").read_bytes())


def write_bytes(out: str, content: bytes) -> None:
    """Write a file, or to standard output."""
    with failing(f"cannot write {out}"):
        if out == STANDARD:
            _standard_output().write(content)
        else:
            with replacing(out) as file:
                file.write(content)


def write_page(html: str, draw: Callable[[], str]) -> None:
    """Draw a page and write it into a file or to standard output."""
    with guarded(), watching() as watch:
        with watch.steps("drawing", None):
            page = draw()
        write_bytes(html, page.encode())


def print_and_draw(
    content: dict[str, Any],
    print_content: Callable[[], None],
    html: str | None,
    draw: Callable[[], str],
    *,
    as_json: bool,
) -> None:
    """Print a result as JSON or in words, then write its page; print nothing if that is standard output."""
    if html != STANDARD:
        print_json(content) if as_json else print_content()
    if html is not None:
        write_page(html, draw)
        if html != STANDARD and not as_json:
            say()
            say(f"written into {html}")


def _standard_output() -> BinaryIO:
    """Standard output as a stream of bytes, after flushing text."""
    sys.stdout.flush()
    return cast(BinaryIO, sys.stdout.buffer)
