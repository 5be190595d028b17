"""Read text files, CSV and TSV, plain or compressed by gzip, as Arrow tables."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from .arrow import kind_of, numbers_in, pyarrow
from .notation import Notation, is_number

# Separators to choose from; of equally good ones, the first.
_SEPARATORS = ("\t", ",", ";", "|")
# The column names must be within this many bytes from the beginning of a file.
_HEAD_BYTES = 1 << 22
# Arrow parses blocks of this many bytes; a row must fit into one.
_BLOCK_BYTES = 1 << 24
# The first records of a file, by which the separator is chosen.
_HEAD_RECORDS = 20
# Of these records, those within about this many cells decide which columns hold numbers.
_HEAD_CELLS = 20_000
# Longest cell, in characters; Python refuses longer ones than 131,072 by default.
_LONGEST_CELL = 1 << 30


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
        is_whole = len(block) < _HEAD_BYTES
        head = codecs.getincrementaldecoder(self._encoding)().decode(block, final=is_whole)
        if "\0" in head:
            raise UnicodeError("it has null characters")
        csv.field_size_limit(_LONGEST_CELL)
        self._separator = notation.sep or _separator_of(head, is_whole, notation.mark)
        records = _first_records(head, is_whole, self._separator)
        full = [record for record in records if record]
        self._n_blank = next((i for i, record in enumerate(records) if record), 0)
        self._has_rows = not is_whole or len(full) > notation.header
        # Arrow knows neither several blanks as one separator nor a quotation mark after a blank.
        quote_after_blank = re.escape(self._separator) + ' +"'
        self._has_blanks = self._separator == " " or re.search(quote_after_blank, head) is not None
        self.names = [name.strip() for name in full[0]] if full else []
        if not notation.header:
            self.names = [f"column_{number + 1}" for number in range(len(self.names))]
        regular = [record for record in full[notation.header :] if len(record) == len(self.names)]
        columns = zip(*regular[: max(2, _HEAD_CELLS // max(1, len(self.names)))], strict=True)
        self._numbers = [index for index, cells in enumerate(columns) if self._are_numbers(cells)]

    def _are_numbers(self, cells: Iterable[str]) -> bool:
        """Whether all cells are numbers or missing, and at least one is a number."""
        known = [cell for cell in map(str.strip, cells) if cell not in self.notation.words]
        # Arrow cannot parse numbers with separators of thousands.
        notation = replace(self.notation, thousands="")
        return bool(known) and all(is_number(notation.plain(cell)) for cell in known)

    def read(self) -> Any:
        """All columns as an Arrow table.

        A last column without a name and without values is dropped: its lines end in a separator.
        """
        pa = pyarrow()
        if not self._has_rows:
            return pa.table({name: pa.array([], pa.float64()) for name in self.names})
        try:
            table = self._parsed(self._numbers)
        except pa.ArrowInvalid:
            table = self._with_late_text()
        if self.notation.thousands:
            table = self._without_separators(table)
        *others, last = range(table.num_columns)
        values = table.column(last).unique().to_pylist()
        if self.names[last] == "" and not any(str(value or "").strip() for value in values):
            return table.select(others).rename_columns(self.names[:-1])
        return table.rename_columns(self.names)

    def _with_late_text(self) -> Any:
        """The table of a file with text in a column that has numbers in its first records."""
        import pyarrow as pa

        try:
            return self._parsed(())
        except pa.ArrowInvalid:
            with self._records_of_file("replace") as records, suppress(csv.Error):
                for _ in self._full_records(records):
                    pass  # raises ValueError for a record of another width
            raise

    def _parsed(self, numbers: Collection[int]) -> Any:
        """The table, with the columns `numbers` parsed as numbers; Arrow infers the types of the others."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(self.names))]
        types = {keys[column]: pa.float64() for column in numbers}
        types |= {
            key: pa.string() for key, name in zip(keys, self.names, strict=True) if self._stays_text(name)
        }
        skipped, separator = self._n_blank + self.notation.header, self._separator
        encoding = "utf-8" if self._encoding == "utf-8-sig" else self._encoding
        if self._has_blanks:
            skipped, separator, encoding = 0, "\t", "utf-8"
        read = pacsv.ReadOptions(
            column_names=keys, skip_rows_after_names=skipped, block_size=_BLOCK_BYTES, encoding=encoding
        )
        parse = pacsv.ParseOptions(delimiter=separator, newlines_in_values=True)
        convert = pacsv.ConvertOptions(
            column_types=types, null_values=list(self.notation.number_words), decimal_point=self.notation.mark
        )
        with self._without_blanks() if self._has_blanks else self._bytes() as file:
            return pacsv.read_csv(file, read, parse, convert)

    def _without_blanks(self) -> io.BytesIO:
        """The rows of a file in memory, written in a way that Arrow can parse."""
        text = io.StringIO(newline="")
        with self._records_of_file("strict") as records:
            csv.writer(text, delimiter="\t", lineterminator="\n").writerows(self._full_records(records))
        return io.BytesIO(text.getvalue().encode())

    def _without_separators(self, table: Any) -> Any:
        """Replace columns of text by numbers if all are numbers, and some have separators of thousands."""
        import pyarrow as pa

        for index, name in enumerate(self.names):
            column = table.column(index)
            if kind_of(column.type) != "text" or self._stays_text(name):
                continue
            if any(self.notation.is_grouped(text.strip()) for text in column.unique().to_pylist() if text):
                values, wrong = numbers_in(column.combine_chunks(), self.notation)
                if wrong is None:
                    table = table.set_column(index, table.column_names[index], pa.array(values))
        return table

    def _stays_text(self, name: str) -> bool:
        return name in self.notation.as_text or name in self.notation.categorical

    def place(self, row: int) -> str:
        """The line on which a row ends. Only errors need it, so the file is read again."""
        with self._records_of_file("replace") as records, suppress(csv.Error):
            for number, _ in enumerate(filter(None, records)):
                if number == row + self.notation.header:
                    return f"line {records.line_num}"
        return f"row {row + 1}"

    def _full_records(self, records: Any) -> Iterator[list[str]]:
        """Yield the records of rows; raise ValueError if one has more or fewer values than the first line."""
        for number, record in enumerate(filter(None, records)):
            if len(record) != len(self.names):
                problem = f"line {records.line_num} has {len(record)} values"
                raise ValueError(f"{problem}, but the first line has {len(self.names)}.")
            if number >= self.notation.header:
                yield record

    @contextmanager
    def _records_of_file(self, errors: str) -> Iterator[Any]:
        """Open the file as records, parsed by Python."""
        with self._bytes() as content, io.TextIOWrapper(content, self._encoding, errors, newline="") as text:
            yield _records(text, self._separator)

    @contextmanager
    def _bytes(self) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            yield gzip.GzipFile(fileobj=file) if self._is_packed else file


def _separator_of(head: str, is_whole: bool, decimal: str) -> str:
    """The separator with the most records of equal width, then with the widest records."""

    def fitness(separator: str) -> tuple[float, int]:
        widths = [len(record) for record in _first_records(head, is_whole, separator) if record]
        if not widths or widths[0] < 2:
            return 0.0, 0
        return widths.count(widths[0]) / len(widths), widths[0]

    candidates = [separator for separator in _SEPARATORS if separator != decimal and separator in head]
    return max(candidates, key=fitness, default=";" if decimal == "," else ",")


def _first_records(head: str, is_whole: bool, separator: str) -> list[list[str]]:
    """The first records among the first characters of a file; the last one may be cut off."""
    records = list(islice(_records(io.StringIO(head, newline=""), separator), _HEAD_RECORDS))
    is_cut = 1 < len(records) < _HEAD_RECORDS and not is_whole
    return records[:-1] if is_cut else records


def _records(lines: Iterable[str], separator: str) -> Any:
    """An iterator over records; blanks at the end of a line are no separators."""
    if separator == " ":
        lines = (line.rstrip(" \r\n") + "\n" for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)
