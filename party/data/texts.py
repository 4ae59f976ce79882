"""CSV files as they are found: any usual delimiter, with or without a byte-order mark, spaces around values."""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from fedora_vfl.errors import DataError
from party.data.checking import checked_names

DELIMITERS = ",;\t|"
NAMELESS = "\n"


@dataclass(frozen=True)
class Text:
    """A CSV file cut into header and body; values are still text."""

    path: Path
    names: list[str]
    delimiter: str
    body: bytes
    lines_before: int

    def table(self) -> "pa.Table":
        """Parse the body; every value stays the text it is."""
        if not self.body.strip():
            raise DataError(f"{self.path}: has a header but no rows")
        self._check_quotes()
        kind = pa.large_string()
        # pyarrow takes a byte-order mark off whatever comes first; here that is a value, which keeps what it has.
        marked = codecs.BOM_UTF8 if self.body.startswith(codecs.BOM_UTF8) else b""
        try:
            return pyarrow.csv.read_csv(
                pa.BufferReader(marked + self.body),
                # One thread, as every party of a local cluster reads at the same time.
                pyarrow.csv.ReadOptions(use_threads=False, column_names=self.names, block_size=1 << 24),
                pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(self.names, kind), strings_can_be_null=False),
            )
        except pa.ArrowInvalid as error:
            raise DataError(f"{self.path}: {self._fault() or f'is not a CSV file: {error}'}") from None

    def locate(self, row: int) -> str:
        """Say on which line a row stands; blank lines and line breaks inside quotes count."""
        for number, (line, _) in enumerate(self._rows()):
            if number == row:
                return f"line {line}"
        return f"row {row + 1}"

    def _check_quotes(self) -> None:
        """Refuse a quote that is never closed, as it would swallow all rows after it."""
        if self.body.count(b'"') % 2 == 0:
            return
        reader = csv.reader(io.StringIO(self.body.decode(), newline=""), delimiter=self.delimiter, strict=True)
        line = 0
        try:
            for _ in reader:
                line = reader.line_num
        except csv.Error as error:
            if "end of data" in str(error):
                line += self.lines_before + 1
                raise DataError(f"{self.path}: line {line} opens a quote that is never closed") from None

    def _fault(self) -> str | None:
        """Name the first line whose number of values is not that of the header."""
        width = len(self.names)
        for line, values in self._rows():
            if len(values) != width:
                return f"line {line} has {len(values)} values where the header has {width} names"
        return None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Walk through the rows with their lines; slow, and used for errors only."""
        reader = csv.reader(io.StringIO(self.body.decode(), newline=""), delimiter=self.delimiter)
        line = self.lines_before + 1
        try:
            for values in reader:
                if values:
                    yield line, values
                line = self.lines_before + reader.line_num + 1
        except csv.Error:
            return


def open_text(path: Path) -> Text:
    """Read a CSV file's bytes and its header."""
    content = _content(path)
    start = re.search(rb"[^\r\n]", content)
    if start is None:
        raise DataError(f"{path}: is empty")
    end = re.compile(rb"\r\n|\n|\r").search(content, start.start())
    header = content[start.start() : end.start() if end else None].decode()
    body = content[end.end() :] if end else b""
    delimiter = _delimiter(header, path)
    names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter, skipinitialspace=True))]
    # A column without a name gets one that no file can hold, to be told apart while parsing.
    names = [name or f"{NAMELESS}{number}" for number, name in enumerate(names, start=1)]
    checked_names(names, path)
    before = len(re.findall(rb"\r\n|\n|\r", content[: len(content) - len(body)]))
    return Text(path, names, delimiter, body, before)


def _content(path: Path) -> bytes:
    """Read a file as UTF-8 bytes without a byte-order mark."""
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path}: is not a gzip file, or a broken one") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line} is not UTF-8 text; save the file as UTF-8") from None
    return content.removeprefix(codecs.BOM_UTF8)


def _delimiter(header: str, path: Path) -> str:
    """Take the delimiter that stands most often in the header, outside quotes."""
    if ".tsv" in path.suffixes:
        return "\t"
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)
