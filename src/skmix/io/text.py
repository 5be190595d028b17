"""Read text files, CSV and TSV, plain or compressed by gzip; Arrow parses them."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..data.notation import Notation, is_number
from .arrow import pyarrow

_SEPARATORS = ("\t", ",", ";", "|")
# The column names must be within this many bytes from the beginning of a file.
_HEAD_BYTES = 1 << 22
# Arrow parses blocks of this many bytes; a row must fit into one.
_BLOCK_BYTES = 1 << 24
# The first records of a file, by which the separator is chosen.
_HEAD_RECORDS = 20
# Of these records, those within about this many cells decide which columns hold numbers.
_HEAD_CELLS = 20_000


class TextFile:
    """A text file whose first bytes have been read; `names` are those of its columns."""

    def __init__(self, path: Path, notation: Notation) -> None:
        self.path = path
        self.notation = notation
        with open(path, "rb") as file:
            self._is_packed = file.read(2) == b"\x1f\x8b"
        with self._bytes() as content:
            block = content.read(_HEAD_BYTES)
        self._encoding = notation.encoding or "utf-8-sig"
        if notation.encoding is None and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._encoding = "utf-16"
        self._is_whole = len(block) < _HEAD_BYTES
        head = codecs.getincrementaldecoder(self._encoding)().decode(block, final=self._is_whole)
        if "\0" in head:
            raise UnicodeError("it has null characters")
        self._separator, records = self._sniff(head)
        full = [record for record in records if record]
        self._n_blank = next((i for i, record in enumerate(records) if record), 0)
        self._has_rows = not self._is_whole or len(full) > notation.header
        # Arrow does not recognise a quotation mark after a blank.
        has_blanks = '"' in head and re.search(re.escape(self._separator) + ' +"', head) is not None
        self._is_odd = self._separator == " " or has_blanks
        self.names = [name.strip() for name in full[0]] if full else []
        if not notation.header:
            self.names = [f"column_{i}" for i in range(1, len(self.names) + 1)]
        regular = [record for record in full[notation.header :] if len(record) == len(self.names)]
        shown = regular[: max(2, _HEAD_CELLS // max(1, len(self.names)))]
        self._numbers = [i for i, cells in enumerate(zip(*shown, strict=True)) if self._are_numbers(cells)]

    def _are_numbers(self, cells: Iterable[str]) -> bool:
        """Return whether all cells are numbers or missing, and at least one is a number."""
        known = [cell for cell in map(str.strip, cells) if cell not in self.notation.words]
        # Arrow cannot parse numbers with separators of thousands.
        notation = replace(self.notation, thousands="")
        return bool(known) and all(is_number(notation.plain(cell)) for cell in known)

    def read(self) -> Any:
        """Return all columns as an Arrow table.

        Drop a last column without a name and without values: its lines end in a separator.
        """
        pa = pyarrow()
        if not self._has_rows:
            return pa.table({name: pa.array([], pa.float64()) for name in self.names})
        try:
            try:
                table = self._parsed(self._numbers)
            except pa.ArrowInvalid:
                # Text occurs only after the first bytes.
                table = self._parsed(())
        except pa.ArrowInvalid:
            self._check_widths()
            raise
        last = table.column(table.num_columns - 1)
        if self.names[-1] == "" and not any(str(each or "").strip() for each in last.unique().to_pylist()):
            return table.remove_column(table.num_columns - 1).rename_columns(self.names[:-1])
        return table.rename_columns(self.names)

    def _parsed(self, numbers: Collection[int]) -> Any:
        """Parse the table; Arrow infers the types of columns other than `numbers`."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(self.names))]
        as_text = {*self.notation.as_text, *self.notation.categorical}
        types = {keys[column]: pa.float64() for column in numbers}
        types |= {key: pa.string() for key, name in zip(keys, self.names, strict=True) if name in as_text}
        read = pacsv.ReadOptions(
            column_names=keys,
            skip_rows_after_names=0 if self._is_odd else self._n_blank + self.notation.header,
            block_size=_BLOCK_BYTES,
            encoding="utf-8" if self._is_odd or self._encoding == "utf-8-sig" else self._encoding,
        )
        parse = pacsv.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert = pacsv.ConvertOptions(
            column_types=types,
            null_values=list(self.notation.number_words),
            decimal_point=self.notation.mark,
        )
        with self._bytes() as file:
            return pacsv.read_csv(self._plain() if self._is_odd else file, read, parse, convert)

    def _plain(self) -> io.BytesIO:
        """Rewrite the rows for Arrow, with single separators, and quotes where they are needed."""
        plain = io.StringIO(newline="")
        with self._lines() as lines:
            rows = itertools.islice(filter(None, lines), int(self.notation.header), None)
            csv.writer(plain, delimiter=self._separator).writerows(rows)
        return io.BytesIO(plain.getvalue().encode())

    def place(self, row: int) -> str:
        """Return the line on which a row ends. Only errors need it, so the file is read again."""
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
        """Open the file as records, parsed by Python."""
        with self._bytes() as content, io.TextIOWrapper(content, self._encoding, errors, newline="") as text:
            yield _records(text, self._separator)

    @contextmanager
    def _bytes(self) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            yield gzip.GzipFile(fileobj=file) if self._is_packed else file

    def _sniff(self, head: str) -> tuple[str, list[list[str]]]:
        """Return the separator and the first records, given the first characters of the file.

        Unless the notation has a separator, choose the one with the most records of equal width, then the
        widest records.
        """
        # Python refuses longer values by default.
        csv.field_size_limit(1 << 30)

        @cache
        def records(separator: str) -> list[list[str]]:
            lines = _records(io.StringIO(head, newline=""), separator)
            found = list(itertools.islice(lines, _HEAD_RECORDS))
            is_cut = 1 < len(found) < _HEAD_RECORDS and not self._is_whole
            return found[:-1] if is_cut else found

        def fitness(separator: str) -> tuple[float, int]:
            widths = [len(record) for record in records(separator) if record]
            if not widths or widths[0] < 2:
                return 0.0, 0
            return widths.count(widths[0]) / len(widths), widths[0]

        notation = self.notation
        candidates = [each for each in _SEPARATORS if each != notation.mark and each in head]
        default = ";" if notation.mark == "," else ","
        separator = notation.sep or max(candidates, key=fitness, default=default)
        return separator, records(separator)


def _records(lines: Iterable[str], separator: str) -> Any:
    """Return an iterator over records; blanks at the end of a line are no separators."""
    if separator == " ":
        lines = (re.sub(r" +(?=[\r\n]*$)", "", line) for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)
