"""Text files are split into the rows that Python's csv reads, wherever the pieces end in which they are read."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from odd_text import Style, rows_of, style, written
from seeds import seed as seed_of

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from freshgo import errors
from freshgo._tables.texts import parsed
from freshgo._text.dialect import Dialect
from freshgo._text.lines import Rows


def read(text: str, how: Dialect, block: int, most: int = 1 << 20) -> list[list[str]] | None:
    """The rows of a file as freshgo reads them, None where it refuses one."""
    rows: list[Any] = []
    try:
        found = Rows("file", io.BytesIO(text.encode()), how, most, block=block)
        first = found.first(how)
        width = 1 if first is None else len(first.fields)
        for piece in found:
            rows += parsed(piece, how, width, list(range(width))).to_pylist()
    except ValueError:  # ours, and pyarrow's where a row has another number of fields
        return None
    return [[field or "" for field in row.values()] for row in rows]


def check_files(count: int, rng: random.Random) -> None:
    accepted = 0
    for _ in range(count):
        how = style(rng)
        text = written(rng, how, rng.randint(1, 4), rng.randint(0, 8), wild=rng.choice([0, 0, 0.3])).lstrip("\ufeff")
        dialect = Dialect("t", delimiter=how.delimiter, quote=how.quote, escape=how.escape, comment=how.comment)
        want = rows_of(text, how)
        assert read(text, dialect, rng.choice([1, 2, 3, 5, 8, 13, 1000])) == want, (text, how)
        accepted += bool(want)
    assert count // 4 < accepted < count


def test_rows_of_odd_files() -> None:
    check_files(1000, random.Random(seed_of(0)))


@pytest.mark.explore
@pytest.mark.long
def test_rows_of_many_odd_files() -> None:
    check_files(100_000, random.Random(seed_of(1)))


@pytest.mark.parametrize("delimiter", [" ", "whitespace"])
def test_runs_of_spaces_separate_fields(delimiter: str) -> None:
    rng = random.Random(seed_of(2))
    spaces = " \t" if delimiter == "whitespace" else " "
    for _ in range(300):
        names = ["a", "#1", "\u00a0", '"x  y"', '"a ""b"""', 'q"'] + ["\t"] * (delimiter == " ")
        rows = [[rng.choice(names) for _ in range(3)] for _ in range(rng.randint(1, 5))]

        def run(least: int) -> str:
            return "".join(rng.choices(spaces, k=rng.randint(least, 3)))

        text = "".join(run(0) + run(1).join(row) + run(0) + rng.choice(["\n", "\r\n", "\r"]) for row in rows)
        want = [[f[1:-1].replace('""', '"') if f.startswith('"') else f for f in row] for row in rows]
        assert read(text, Dialect("t", delimiter=delimiter), rng.choice([3, 10, 1000])) == want, text


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('a,b\n1,"x"y\n', 2, 'text behind a closing quote "'),
        ('a,b\n\n"1\n2",3\n4,"5\n6\n', 5, 'a quote " begins a field and none ends it'),
    ],
)
def test_quotes_that_are_malformed(text: str, line: int, said: str) -> None:
    for block in (1, 3, 100):
        with pytest.raises(errors.InvalidArgumentError, match=f"file, line {line}: {said}"):
            for _ in Rows("file", io.BytesIO(text.encode()), Dialect("t", delimiter=","), 1 << 20, block=block):
                pass


def test_a_long_row_and_one_that_never_ends() -> None:
    long = "x" * (3 << 20)
    rows = read(f'a,"{long}\n"\n1,2\n', Dialect("t", delimiter=","), 1 << 16, 4 << 20)
    assert rows == [["a", long + "\n"], ["1", "2"]]
    text = io.BytesIO(b'a,b\n1,"' + b"2\n" * (1 << 20))
    with pytest.raises(errors.InvalidArgumentError, match=r"file, line 2: a row of more than 1 MiB, .*is a quote open"):
        for _ in Rows("file", text, Dialect("t", delimiter=","), 1 << 20, block=1 << 16):
            pass


def test_the_oracle_differs_from_a_wrong_dialect() -> None:
    assert rows_of('"a,b"\n', Style()) == [["a,b"]]
    assert rows_of('"a,b"\n', Style(quote=None)) == [['"a', 'b"']]
    assert rows_of("#a\nb\n", Style(comment="#")) == [["b"]]
    assert rows_of('"a"b\n', Style()) is None
