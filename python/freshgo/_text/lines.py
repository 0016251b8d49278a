"""A text file in pieces of whole rows.

pyarrow splits rows as RFC 4180 says where a buffer holds whole rows. It loses a line feed where a buffer ends inside
quotes, and it reads text behind a closing quote as text. So the ends of rows are found here, and quotes are checked: by
their parity where each of them begins or ends a field, else by Python's csv.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import dataclasses
import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from freshgo._text.dialect import Dialect
from freshgo.errors import InvalidArgumentError

BLOCK = 4 << 20
"""Bytes of text that are split at a time: pyarrow takes 0.1 ms for each piece, and 20 ms to parse 4 MiB."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclasses.dataclass
class Piece:
    """Some whole rows."""

    data: bytes
    """The rows in UTF-8, without comments."""
    raw: bytes
    """The rows with comments: lines are counted here."""
    line: int
    """Lines of the file before these."""


@dataclasses.dataclass
class Row:
    """A row as Python's csv splits it."""

    fields: list[str]
    line: int
    """The line on which the row begins, counted from 1."""
    end: int
    """The offset behind the row."""
    lines: int
    """Lines up to its end, with comments before it."""


class Rows:
    """The rows of an open file.

    Raises:
        InvalidArgumentError: the text is not in the encoding, quotes are malformed, or a row does not fit into memory;
            the message names file and line.
    """

    def __init__(self, where: str, file: IO[bytes], dialect: Dialect, most: int, block: int = BLOCK) -> None:
        """``where`` names the file in messages. A row may have up to ``most`` bytes."""
        self._where, self._file, self._most, self._block = where, file, most, block
        self.dialect = dialect
        self._decoder = None if dialect.utf8 else codecs.getincrementaldecoder(dialect.encoding)()
        self._pending, self._ended, self._line = b"", False, 0
        self._fill()
        if self._decoder is None and self._pending.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InvalidArgumentError(f"{where}: not utf-8 but, as it begins, utf-16: encoding='utf-16' reads it")
        self._pending = self._pending.removeprefix(codecs.BOM_UTF8)

    def first(self, dialect: Dialect) -> Row | None:
        """Return the first row as a dialect splits it, None if there is none. The row stays where it is."""
        while True:
            whole = self._pending if self._ended else self._pending[: _last_end(self._pending)]
            with contextlib.suppress(_OpenError):
                row = next(walk(self._where, dialect, _squeezed(whole, dialect), self._line, ended=self._ended), None)
                if row is not None or self._ended:
                    return row
            self._check_length()
            self._fill()

    def skip(self, row: Row) -> None:
        """Leave out the first row."""
        for _ in range(row.lines):
            found = re.match(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)", self._pending)
            assert found is not None
            self._pending = self._pending[found.end() :]
        self._line += row.lines

    def __iter__(self) -> Iterator[Piece]:
        spaces = bool(self.dialect.spaces)
        while self._pending or not self._ended:
            end = len(self._pending) if self._ended else _last_end(self._pending)
            data = _squeezed(self._pending[:end], self.dialect)
            cut, comments = self._cut(data, self._ended or spaces)  # with runs of spaces, a row is a line
            if cut:
                raw = data[:cut]
                self._pending = self._pending[end if spaces else cut :]
                yield Piece(_without(raw, comments), raw, self._line)
                self._line += _count_lines(raw)
            elif self._ended:
                return
            else:
                self._check_length()
            if not self._ended:
                self._fill()

    def _fill(self) -> None:
        more = self._file.read(max(self._block, len(self._pending)))
        self._ended = not more
        if self._decoder is not None:
            try:
                more = self._decoder.decode(more, self._ended).encode()
            except UnicodeError as error:
                line = self._line + _count_lines(self._pending) + 1
                raise InvalidArgumentError(
                    f"{self._where}, line {line} or later: not {self.dialect.encoding}: {error} (pass encoding= if it "
                    "is in another)"
                ) from None
        self._pending += more

    def _check_length(self) -> None:
        if len(self._pending) > self._most:
            raise InvalidArgumentError(
                f"{self._where}, line {self._line + 1}: a row of more than {self._most >> 20} MiB, which memory= does "
                "not hold (is a quote open, or quote= another?)"
            )

    def _cut(self, data: bytes, ended: bool) -> tuple[int, list[tuple[int, int]]]:
        """Return where the last whole row ends, and where comments begin and end."""
        dialect = self.dialect
        comments = [] if dialect.comment is None else _comments(data, dialect.comment.encode())
        marks = [mark.encode() for mark in (dialect.quote, dialect.escape) if mark is not None]
        if not any(mark in data for mark in marks):
            return len(data), comments
        if dialect.escape is None and not comments:
            cut = _regular(data, dialect, ended)
            if cut is not None:
                return cut, []
        cut, comments = 0, []
        with contextlib.suppress(_OpenError):
            for row in walk(self._where, dialect, data, self._line, ended=ended, comments=comments):
                cut = row.end
            cut = len(data)
        return cut, [span for span in comments if span[1] <= cut]


def walk(
    where: str,
    dialect: Dialect,
    data: bytes,
    line: int,
    *,
    ended: bool = True,
    comments: list[tuple[int, int]] | None = None,
) -> Iterator[Row]:
    """Split rows one by one, empty lines left out.

    Args:
        where: the file, for messages.
        dialect: with a delimiter.
        data: whole lines.
        line: lines of the file before these.
        ended: nothing comes behind ``data``.
        comments: gets where each comment begins and ends.

    Raises:
        InvalidArgumentError: quotes are not as RFC 4180 has them.
        _OpenError: the last row is not whole, and ``data`` is not all.
    """
    at, fresh, begin, before = 0, True, line, line
    mark = None if dialect.comment is None else dialect.comment.encode().decode("latin-1")

    def lines() -> Iterator[str]:
        nonlocal at, fresh, line, begin
        for found in _LINE.finditer(data.decode("latin-1")):  # a character for each byte
            text = found.group()
            line, at = line + 1, found.end()
            if fresh and mark is not None and text.startswith(mark):
                if comments is not None:
                    comments.append(found.span())
                continue
            begin, fresh = line if fresh else begin, False
            yield text.replace("\0", "\u0100")  # csv of Python 3.10 refuses NUL

    csv.field_size_limit(max(csv.field_size_limit(), (1 << 31) - 1))
    style: dict[str, Any] = {
        "delimiter": " " if dialect.spaces else dialect.delimiter or ",",
        "quotechar": dialect.quote,
        "escapechar": dialect.escape,
        "quoting": csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
    }
    reader = csv.reader(lines(), strict=True, **style)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" not in str(error):
                said = f"text behind a closing quote {dialect.quote}" if "expected after" in str(error) else error
                raise InvalidArgumentError(
                    f"{where}, line {line}: {said} (inside quotes a quote is written twice; quote=None reads quotes as "
                    "text)"
                ) from None
            if not ended:
                raise _OpenError from None
            raise InvalidArgumentError(
                f"{where}, line {begin}: a quote {dialect.quote} begins a field and none ends it (quote=None reads "
                "quotes as text)"
            ) from None
        fresh = True
        if fields:
            yield Row([_utf8(field) for field in fields], begin, at, line - before)


class _OpenError(Exception):
    """A row is not whole."""


def _utf8(field: str) -> str:
    return field.replace("\u0100", "\0").encode("latin-1").decode("utf-8", "replace")


def _last_end(data: bytes) -> int:
    """Return where the last whole line ends: behind a carriage return at the end of ``data``, a line feed may come."""
    end = data.rfind(b"\n") + 1
    return max(end, data.rfind(b"\r", end, len(data) - 1) + 1)


def _count_lines(data: bytes) -> int:
    feeds, returns = data.count(b"\n"), data.count(b"\r")
    return feeds + returns - data.count(b"\r\n") if returns else feeds


def _comments(data: bytes, comment: bytes) -> list[tuple[int, int]]:
    """Return where lines begin and end that begin with a text."""
    if comment not in data:
        return []
    pattern = rb"(?:\A|(?<=[\r\n]))" + re.escape(comment) + rb"[^\r\n]*(?:\r\n|\r|\n|\Z)"
    return [found.span() for found in re.finditer(pattern, data)]


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    kept, at = [], 0
    for begin, end in spans:
        kept.append(data[at:begin])
        at = end
    return b"".join([*kept, data[at:]])


def _squeezed(data: bytes, dialect: Dialect) -> bytes:
    """Return lines in which each run of spaces between fields is one space, and none is at their ends."""
    spaces = dialect.spaces
    if not spaces:
        return data
    quote = None if dialect.quote is None else re.escape(dialect.quote.encode())
    if dialect.quote is not None and quote is not None and dialect.quote.encode() in data:
        begins = b"(?<![^" + spaces + b"\r\n])"
        quoted = begins + quote + b"(?:[^" + quote + b"\r\n]|" + quote + quote + b")*" + quote
        data = re.sub(b"(" + quoted + b")|[" + spaces + b"]+", lambda found: found[1] or b" ", data)
    else:
        data = data.translate(bytes.maketrans(spaces, b" " * len(spaces)))
        if b"  " in data:
            data = re.sub(b"  +", b" ", data)
    for end in (b"\n", b"\r"):
        data = data.replace(end + b" ", end).replace(b" " + end, end)
    return data.removeprefix(b" ").removesuffix(b" ")


def _regular(data: bytes, dialect: Dialect, ended: bool) -> int | None:
    """Return where the last whole row ends, None where a quote neither begins nor ends a field.

    Every second quote begins a field, or directly follows the quote before it: two quotes inside quotes are a pair.
    """
    assert dialect.quote is not None
    values = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(values == ord(dialect.quote))
    beside = np.zeros(256, bool)
    beside[[ord(" " if dialect.spaces else dialect.delimiter or ","), *b"\r\n", ord(dialect.quote)]] = True
    opens, closes = places[::2], places[1::2]
    if not (beside[values[opens - 1]] | (opens == 0)).all():
        return None
    if not (beside[values[(closes + 1) % len(values)]] | (closes + 1 == len(values))).all():
        return None
    if len(opens) == len(closes):
        return len(data)  # which ends with a line, outside of quotes
    if ended:
        return None
    for at in range(len(closes) - 1, -2, -1):  # between a field in quotes and the next one
        begin = int(closes[at]) + 1 if at >= 0 else 0
        cut = _last_end(data[begin : int(opens[at + 1])] + b" ")
        if cut:
            return begin + cut
    return 0
