"""How rows of text are written: delimiter, quotes, comments; checked before a file is opened."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Sequence

from freshgo._args.checks import shown
from freshgo._args.hints import did_you_mean
from freshgo.errors import DTypeError, InvalidArgumentError

WHITESPACE = "whitespace"
"""The delimiter that is any run of spaces and tabs."""

GUESSED = (",", "\t", ";", "|")
"""Delimiters that a header can decide between: with two of them, the names that the user gives are never both there."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The options of text files.

    Raises:
        DTypeError, InvalidArgumentError: an option cannot be meant; the message begins with ``label``.
    """

    label: str
    header: bool | None = None
    names: Sequence[str] | None = None
    delimiter: str | None = None
    """None: what the header says."""
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        self._check_names()
        if self.delimiter != WHITESPACE:
            self._check_mark("delimiter", self.delimiter, f" or {WHITESPACE!r}")
        self._check_mark("quote", self.quote)
        self._check_mark("escape", self.escape)
        marks = {name: getattr(self, name) for name in ("delimiter", "quote", "escape")}
        given = {name: mark for name, mark in marks.items() if mark is not None}
        for name, mark in given.items():
            for other in given:
                if other < name and given[other] == mark:
                    raise InvalidArgumentError(f"{self.label}: {other} and {name} are both {mark!r}")
        if self.comment is not None and not isinstance(self.comment, str):
            raise DTypeError(f"{self.label}: comment must be a string or None, got {shown(self.comment)}")
        if self.comment == "" or set("\r\n") & set(self.comment or ""):
            raise InvalidArgumentError(
                f"{self.label}: comment must be the beginning of a line, such as '#', got {self.comment!r}"
            )
        if not isinstance(self.encoding, str):
            raise DTypeError(f"{self.label}: encoding must be the name of an encoding, got {shown(self.encoding)}")
        try:
            "a".encode(self.encoding)
        except (LookupError, UnicodeError):
            raise InvalidArgumentError(
                f"{self.label}: encoding={self.encoding!r} is not known, expected a name such as 'utf-8', 'utf-16', "
                "'latin-1'"
            ) from None

    def _check_mark(self, name: str, mark: object, also: str = "") -> None:
        if mark is None:
            return
        if not isinstance(mark, str):
            raise DTypeError(f"{self.label}: {name} must be a character{also} or None, got {shown(mark)}")
        if len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
            near = did_you_mean(mark, [WHITESPACE]) if also else ""
            raise InvalidArgumentError(f"{self.label}: {name} must be one ASCII character{also}, got {mark!r}{near}")

    def _check_names(self) -> None:
        if self.header is not None and not isinstance(self.header, bool):
            raise DTypeError(f"{self.label}: header must be True, False or None, got {shown(self.header)}")
        if self.names is None:
            if self.header is False:
                raise InvalidArgumentError(
                    f"{self.label}: header=False needs names=, the names of the columns from left to right"
                )
            return
        if isinstance(self.names, str) or not all(isinstance(name, str) for name in self.names):
            raise DTypeError(f"{self.label}: names must be a list of strings, got {shown(self.names)}")
        if self.header is None:
            raise InvalidArgumentError(
                f"{self.label}: names= needs header=: header=False where the first row is data, header=True where it "
                "has names that names= replaces"
            )

    @property
    def utf8(self) -> bool:
        """Whether files need not be decoded before they are split into rows."""
        return codecs.lookup(self.encoding).name == "utf-8"

    @property
    def spaces(self) -> bytes:
        """The characters whose runs are one delimiter."""
        return {WHITESPACE: b" \t", " ": b" "}.get(self.delimiter or "", b"")

    def split_by(self, delimiter: str) -> Dialect:
        """Return the same with a delimiter."""
        return dataclasses.replace(self, delimiter=delimiter)
