"""Random text files of odd tokens, and their rows as Python's csv reads them."""

from __future__ import annotations

import csv
import dataclasses
import random
import re
from collections.abc import Iterator, Sequence

TOKENS = (
    *("a", "1", "#", "0x10", " ", "NA", "nan", "-0", "%", "'", "\\", "\\N", "\t", ";", ",", "|", '"', '""', "\r", "\n"),
    *("\r\n", "\0", "é", "e\u0301", "ß", "1e3", "007", "+7", "1_0", "x y", "NULL", "\ufeff", "\u2028"),
)


@dataclasses.dataclass
class Style:
    """How a file is written."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None


def style(rng: random.Random) -> Style:
    """Return any style."""
    comment = rng.choice([None, None, "#", "%c"])
    return Style(rng.choice(",\t;"), rng.choice(['"', '"', "'", None]), rng.choice([None, None, "\\"]), comment)


def written(
    rng: random.Random, how: Style, columns: int, rows: int, *, wild: float = 0, keys: Sequence[str] = ()
) -> str:
    """Return a file with line ends of several kinds. A share of ``wild`` fields may be malformed. With ``keys`` the
    first fields begin with these."""
    ends = rng.choice([["\n"], ["\r\n"], ["\n", "\r\n", "\r"]])
    text = ""
    for row in range(rows):
        if how.comment is not None and rng.random() < 0.1:
            text += f'{how.comment} a "comment{rng.choice(ends)}'
        fields = [_field(rng, how, wild) for _ in range(columns + (rng.random() < wild / 4))]
        if keys:
            fields[0] = _field(rng, how, wild, keys[row])
        text += how.delimiter.join(fields) + rng.choice(ends) * (2 if rng.random() < 0.1 else 1)
    return text.rstrip("\r\n") if rng.random() < 0.3 else text


def _field(rng: random.Random, how: Style, wild: float, begin: str = "") -> str:
    body = begin + "".join(rng.choices(TOKENS, k=rng.randint(0, 3)))
    if rng.random() < wild:
        return body
    if how.quote is not None and rng.random() < 0.4:
        body = body.replace(how.quote, how.quote * 2)
        if how.escape is not None:
            body = body.replace(how.escape, how.escape * 2)
        return how.quote + body + how.quote
    for mark in (how.delimiter, how.escape, "\r", "\n"):
        body = body.replace(mark or "\n", "")
    begins = how.quote is not None and body.startswith(how.quote)
    return "q" + body if begins or (how.comment is not None and body.startswith(how.comment[0])) else body


def rows_of(text: str, how: Style) -> list[list[str]] | None:
    """Return the rows of a file without empty lines and comments, None where csv refuses it or their lengths differ."""
    fresh = True

    def lines() -> Iterator[str]:
        nonlocal fresh
        for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text):
            if fresh and how.comment is not None and line.startswith(how.comment):
                continue
            fresh = False
            yield line.replace("\0", "\ue000")  # csv of Python 3.10 refuses NUL

    quoting = csv.QUOTE_NONE if how.quote is None else csv.QUOTE_MINIMAL
    marks = {"delimiter": how.delimiter, "quotechar": how.quote, "escapechar": how.escape}
    rows = []
    try:
        for row in csv.reader(lines(), strict=True, quoting=quoting, **marks):  # type: ignore[call-overload]
            fresh = True
            if row:
                rows.append([field.replace("\ue000", "\0") for field in row])
    except csv.Error:
        return None
    return rows if len({len(row) for row in rows}) <= 1 else None
