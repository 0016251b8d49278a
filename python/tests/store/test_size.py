"""Sizes in bytes."""

from __future__ import annotations

import pytest

from freshgo._args.size import available_memory, format_size, parse_size
from freshgo.errors import DTypeError, InvalidArgumentError


@pytest.mark.parametrize(
    ("given", "n_bytes"),
    [
        (0, 0),
        (123, 123),
        ("123", 123),
        ("5B", 5),
        ("2kB", 2000),
        ("2KiB", 2048),
        ("1.5 GB", 1_500_000_000),
        ("200MiB", 200 * 2**20),
        (" 1 tib ", 2**40),
    ],
)
def test_parse(given: int | str, n_bytes: int) -> None:
    assert parse_size("memory", given) == n_bytes


@pytest.mark.parametrize("given", ["", "MiB", "1 XB", "-1MiB", "1e9", "1.MB", -1])
def test_parse_refuses(given: int | str) -> None:
    with pytest.raises(InvalidArgumentError, match="memory"):
        parse_size("memory", given)


@pytest.mark.parametrize("given", [1.5, None, True, [1]])
def test_parse_refuses_types(given: object) -> None:
    with pytest.raises(DTypeError, match="memory"):
        parse_size("memory", given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2**51, "2048.0 TiB"),
    ],
)
def test_format(n_bytes: int, text: str) -> None:
    assert format_size(n_bytes) == text


def test_available_memory() -> None:
    assert 0 < available_memory() < 2**50
