"""Errors of the library in the words of a user of Python.

The library writes for programmers in Go: the package before each part of a message, sizes in bytes, the class of the
error as its last part. Python's exceptions have a class and a file name of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from freshgo._args.size import format_size, least_size, too_small
from freshgo.errors import OVERWRITE

_PACKAGES = (
    *("cache", "freshgo", "gpu", "graph", "history", "loader", "manifest", "mem", "narrow", "plan", "propagate"),
    *("prune", "sample", "scratch", "sizing", "ssd", "store"),
)
_CLASSES = (
    *("invalid argument", "invalid input", "invalid option", "invalid configuration", "invalid fanout"),
    *("invalid sampler", "invalid call", "invalid hotness", "invalid cache capacity", "memory budget exceeded"),
    *("seed out of range", "unusable dtype", "batch too large", "no negative to draw", "inconsistent graph"),
)
"""What errors wrap. A message that says nothing else keeps it."""

_PREFIX = re.compile(rf"(^|: )(?:{'|'.join(_PACKAGES)}): ")
_CLASS = re.compile(rf"^(?:{'|'.join(_CLASSES)}): |: (?:{'|'.join(_CLASSES)})(?=: |$)")
_LEAST = re.compile(r"(?:.*: )?(.*) needs a memory budget of at least (\d+) bytes: .* budget's (\d+)")
_NOTHING = re.compile(r"not found: \w+ .*: (no such file or directory|not a directory)")
_EXISTS = re.compile(r"(.* has the tensor .*?|(.*)): already exists; overwrite replaces it")
_REPLACE = "already; pass overwrite=True to replace it"


def spoken(message: str) -> str:
    """Return a message without packages and classes of errors."""
    short = _PREFIX.sub(r"\1", message)
    while (again := _PREFIX.sub(r"\1", short)) != short:
        short = again
    short = _CLASS.sub("", short) or short
    nothing = _NOTHING.fullmatch(short)
    if nothing:
        return nothing[1]
    return _EXISTS.sub(lambda found: f"{found[1]} {OVERWRITE if found[2] is not None else _REPLACE}", short)


def of_budget(message: str) -> str:
    """Return the message of a budget that is too small, with sizes for people."""
    short = spoken(message)
    least = _LEAST.match(short)
    if least:
        return too_small(int(least[3]), int(least[2]), f"{least[1]} needs")
    short = re.sub(r"(\d+) of the budget's (\d+) are left", _each(format_size, "{} of memory={} are left"), short)
    return re.sub(r"(\d{4,}) bytes", lambda found: least_size(int(found[1])), short)


def _each(form: Callable[[int], str], text: str) -> Callable[[re.Match[str]], str]:
    return lambda found: text.format(*(form(int(number)) for number in found.groups()))
