"""The reader of text files: CSV and TSV, also compressed by gzip, parsed by Arrow in blocks."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from .._errors import Argument, ArgumentError
from .arrow import Table, stored
from .encoding import Notation, is_number

_SEPARATORS = ("\t", ",", ";", "|")
# The column names of a file must be within so many of its first bytes.
_HEAD_BYTES = 1 << 22
# Each row must fit into a block of so many bytes.
_BLOCK_BYTES = 1 << 24
# So many records show which character separates columns.
_FEW_RECORDS = 20
# So many records, of about so many cells in all, show which columns hold numbers.
_HEAD_RECORDS = 200
_HEAD_CELLS = 20_000
# After so many columns that turn out to hold text, all columns are read as text.
_MOST_TRIES = 3
_PADDED = re.compile(r"0[0-9]+")


class _NotNumeric(Exception):  # noqa: N818
    """A column that began with numbers has something else."""


class TextFile:
    """An open text file of which only the head has been read.

    Attributes
    ----------
    names : list of str
        Names of the columns.
    padded : dict of str to str
        Columns of numbers with leading zeros, and an example of each.
    """

    def __init__(self, path: Path, notation: Notation) -> None:
        self.path = path
        self.notation = notation
        self.size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(10)
        self._is_packed = start.startswith(b"\x1f\x8b")
        self._encoding = notation.encoding
        if self._encoding is None and start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._encoding = "utf-16"
        with open(path, "rb") as file:
            content = self._as_utf8(file)
            block = content.read(_HEAD_BYTES)
            is_whole = len(block) < _HEAD_BYTES
            if self._encoding is None and len(block) > 3 and not any(block[1:10:2]) and all(block[:10:2]):
                raise ArgumentError(
                    "it seems to be text in UTF-16 without a byte-order mark: use ",
                    Argument("encoding", "utf-16-le"),
                    ".",
                )
            head = codecs.getincrementaldecoder("utf-8-sig")().decode(block, final=is_whole)
            self._separator, records = _sniff(head, is_whole, notation)
            full = [record for record in records if record]
            self._n_blank = next((i for i, record in enumerate(records) if record), 0)
            # Arrow takes a quotation mark after a blank for text, and a line of names alone for no table.
            quotes = re.compile(re.escape(self._separator.encode()) + b' +"')
            self._is_odd = (
                self._separator == " " or len(full) <= notation.header or bool(quotes.search(block))
            )
            self._is_quoted = b'"' in block
            while not self._is_odd and (more := content.read(_BLOCK_BYTES)):
                if b'"' in more:
                    self._is_odd, self._is_quoted = bool(quotes.search(block[-8:] + more)), True
                block = more
        self.names = [name.strip() for name in full[0]] if full else []
        if not notation.header:
            self.names = [f"column_{i}" for i in range(1, len(self.names) + 1)]
        self._text: set[int] = set()
        self.padded: dict[str, str] = {}
        shown = full[notation.header :][: max(2, _HEAD_CELLS // max(1, len(self.names)))]
        for i, cells in enumerate(zip(*(r for r in shown if len(r) == len(self.names)), strict=True)):
            known = [cell for cell in map(str.strip, cells) if cell not in notation.number_words]
            if not all(is_number(notation.plain(cell)) for cell in known):
                self._text.add(i)
            elif all(map(str.isdigit, known)) and any(map(_PADDED.fullmatch, known)):
                self.padded[self.names[i]] = next(filter(_PADDED.fullmatch, known))

    def columns(
        self,
        names: Sequence[str],
        as_text: Collection[str],
        room: int,
        progress: Callable[[float], None] | None = None,
    ) -> Table:
        """Read some columns, numbers or text; those in `as_text` are text in any case.

        A table of more than `room` bytes goes into a temporary file.
        """
        positions = {name: position for position, name in reversed([*enumerate(self.names)])}
        chosen = [positions[name] for name in names]
        text = {*self._text, *(positions[name] for name in as_text if name in positions)}
        for n_tries in itertools.count():
            try:
                table = stored(str(self.path), self._parsed(chosen, text, progress), names, room)
                return replace(table, place=self.place, notation=self.notation, origin=self.path)
            except _NotNumeric as error:
                # There may be thousands of such columns, and the table is read again for each.
                text |= {error.args[0]} if n_tries < _MOST_TRIES else {*chosen}
        raise AssertionError

    def _parsed(
        self, columns: Sequence[int], text: Collection[int], progress: Callable[[float], None] | None
    ) -> Iterator[Any]:
        """Yield record batches of some columns, text or numbers; raise _NotNumeric where these are not."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(self.names))]
        n_skipped, plain = self._n_blank + self.notation.header, io.StringIO(newline="")
        if self._is_odd:
            # Written again as Arrow reads it.
            with self._lines() as lines:
                rows = itertools.islice(filter(None, lines), int(self.notation.header), None)
                csv.writer(plain, delimiter=self._separator).writerows(rows)
            n_skipped = 0
            if not plain.tell():
                return
        read = pacsv.ReadOptions(column_names=keys, skip_rows_after_names=n_skipped, block_size=_BLOCK_BYTES)
        parse = pacsv.ParseOptions(delimiter=self._separator, newlines_in_values=self._is_quoted)
        convert = pacsv.ConvertOptions(
            column_types={key: pa.string() if i in text else pa.float64() for i, key in enumerate(keys)},
            include_columns=[keys[column] for column in columns],
            null_values=list(self.notation.number_words),
            decimal_point=self.notation.decimal,
        )
        with open(self.path, "rb") as file:
            content = io.BytesIO(plain.getvalue().encode()) if self._is_odd else self._as_utf8(file)
            try:
                for batch in pacsv.open_csv(content, read, parse, convert):
                    if progress is not None:
                        progress(1.0 if self._is_odd else file.tell() / self.size)
                    yield batch.rename_columns([self.names[column] for column in columns])
            except pa.ArrowInvalid as error:
                self._check_widths()
                wrong = re.match(r"In CSV column #(\d+).*conversion error to double", str(error))
                if wrong is None:
                    raise
                raise _NotNumeric(int(wrong[1])) from None

    def place(self, row: int) -> str:
        """Return the line at which a row ends. Only errors need it, so the file is read again."""
        with self._lines("replace") as lines, suppress(csv.Error):
            for number, _ in enumerate(filter(None, lines)):
                if number == row + self.notation.header:
                    return f"line {lines.line_num}"
        return f"row {row + 1}"

    def _check_widths(self) -> None:
        with self._lines("replace") as lines, suppress(csv.Error):
            for record in filter(None, lines):
                if len(record) != len(self.names):
                    where = f"line {lines.line_num} has {len(record)} values"
                    raise ValueError(f"{where}, but the first line has {len(self.names)}.")

    @contextmanager
    def _lines(self, errors: str = "strict") -> Iterator[Any]:
        """Yield a reader of all lines by Python."""
        with open(self.path, "rb") as file:
            lines = io.TextIOWrapper(self._as_utf8(file), "utf-8-sig", errors, newline="")
            yield csv.reader(
                _trimmed(lines, self._separator), delimiter=self._separator, skipinitialspace=self._is_odd
            )

    def _as_utf8(self, file: BinaryIO) -> Any:
        import pyarrow as pa

        unpacked = gzip.GzipFile(fileobj=file) if self._is_packed else file
        if self._encoding is None or codecs.lookup(self._encoding).name == "utf-8":
            return unpacked
        return pa.transcoding_input_stream(pa.PythonFile(unpacked, mode="r"), self._encoding, "utf-8")


def _sniff(head: str, is_whole: bool, notation: Notation) -> tuple[str, list[list[str]]]:
    """Return the separator of a text file, given its first characters, and its first records.

    By it, most records have as many values as the first, and that has most values.
    """
    # Python refuses longer values by default.
    csv.field_size_limit(1 << 30)

    def records(separator: str, most: int) -> list[list[str]]:
        text = _trimmed(io.StringIO(head, newline=""), separator)
        lines = csv.reader(text, delimiter=separator, skipinitialspace=True)
        found = list(itertools.islice(lines, most))
        return found[:-1] if len(found) > 1 and len(found) < most and not is_whole else found

    def fitness(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in records(separator, _FEW_RECORDS) if record]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    candidates = [each for each in _SEPARATORS if each != notation.decimal and each in head]
    default = ";" if notation.decimal == "," else ","
    separator = max(candidates, key=fitness, default=default) if notation.sep is None else notation.sep
    return separator, records(separator, _HEAD_RECORDS)


def _trimmed(lines: Iterable[str], separator: str) -> Iterable[str]:
    """Return lines without blanks at their ends if blanks separate columns."""
    return map(partial(re.compile(r" +(?=[\r\n]*$)").sub, ""), lines) if separator == " " else lines
