"""Read text files, CSV and TSV, plain or compressed by gzip.

Arrow parses them; pandas parses files with several blanks between values, or with blanks before quotes.
"""

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

from .._extras import need
from .arrow import pyarrow
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
        regular = regular[: max(2, _HEAD_CELLS // max(1, len(self.names)))]
        columns = zip(*regular, strict=True)
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
        parse = self._by_pandas if self._has_blanks else self._by_arrow
        try:
            try:
                table = parse(self._numbers)
            except ValueError:  # Arrow's errors are of this type
                # Text occurs only after the first bytes.
                table = parse(())
        except pa.ArrowInvalid:
            self._check_widths()
            raise
        *others, last = range(table.num_columns)
        values = table.column(last).unique().to_pylist()
        if self.names[last] == "" and not any(str(value or "").strip() for value in values):
            return table.select(others).rename_columns(self.names[:-1])
        return table.rename_columns(self.names)

    def _by_arrow(self, numbers: Collection[int]) -> Any:
        """The table, with the columns `numbers` parsed as numbers; Arrow infers the types of the others."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(self.names))]
        as_text = {*self.notation.as_text, *self.notation.categorical}
        types = {keys[column]: pa.float64() for column in numbers}
        types |= {key: pa.string() for key, name in zip(keys, self.names, strict=True) if name in as_text}
        read = pacsv.ReadOptions(
            column_names=keys,
            skip_rows_after_names=self._n_blank + self.notation.header,
            block_size=_BLOCK_BYTES,
            encoding="utf-8" if self._encoding == "utf-8-sig" else self._encoding,
        )
        parse = pacsv.ParseOptions(delimiter=self._separator, newlines_in_values=True)
        convert = pacsv.ConvertOptions(
            column_types=types,
            null_values=list(self.notation.number_words),
            decimal_point=self.notation.mark,
        )
        with self._bytes() as file:
            return pacsv.read_csv(file, read, parse, convert)

    def _by_pandas(self, numbers: Collection[int]) -> Any:
        """The table, with the columns `numbers` parsed as numbers and the others as text."""
        pandas = need("pandas", "Text files with several blanks between values, or before quotes, need")
        self._check_widths()  # pandas would fill and cut rows
        as_text = {*self.notation.as_text, *self.notation.categorical}
        numbers = [column for column in numbers if self.names[column] not in as_text]
        with self._bytes() as file:
            frame = pandas.read_csv(
                file,
                sep=r"\s+" if self._separator == " " else self._separator,
                skipinitialspace=True,
                header=0 if self.notation.header else None,
                names=range(len(self.names)),
                dtype={column: "float64" if column in numbers else str for column in range(len(self.names))},
                na_values={column: list(self.notation.number_words) for column in numbers},
                keep_default_na=False,
                decimal=self.notation.mark,
                encoding=self._encoding,
            )
        return pyarrow().Table.from_pandas(frame, preserve_index=False)

    def place(self, row: int) -> str:
        """The line on which a row ends. Only errors need it, so the file is read again."""
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
        lines = (re.sub(r" +(?=[\r\n]*$)", "", line) for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)
