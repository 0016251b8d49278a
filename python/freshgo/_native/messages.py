"""Errors of the library in the words of a user of Python.

The library writes for programmers in Go: the package before each part of a message, sizes in bytes, the class of the
error as its last part. Python's exceptions have a class and a file name of their own.
"""

from __future__ import annotations

import ast
import re

from freshgo._args.hints import did_you_mean
from freshgo._args.size import as_option, format_size, least_size, too_small
from freshgo.errors import OVERWRITE

_PACKAGES = (
    *(
        "cache",
        "embed",
        "freshgo",
        "gpu",
        "graph",
        "history",
        "loader",
        "manifest",
        "mem",
        "narrow",
        "plan",
        "propagate",
    ),
    *("prune", "sample", "scratch", "sizing", "ssd", "store"),
)
_CLASSES = (
    *("invalid argument", "invalid input", "invalid option", "invalid configuration", "invalid fanout"),
    *("invalid sampler", "invalid call", "invalid hotness", "invalid cache capacity", "memory budget exceeded"),
    *("seed out of range", "unusable dtype", "batch too large", "no negative to draw", "inconsistent graph"),
)
"""What errors wrap. A message that says nothing else keeps it."""

_PREFIX = re.compile(rf"(^|: )(?:{'|'.join(_PACKAGES)}): ")
_CLASS = re.compile(rf"^(?:closed|{'|'.join(_CLASSES)}): |: (?:{'|'.join(_CLASSES)})(?=: |$)")
_LEAST = re.compile(r"(?:.*: )?(.*) needs a memory budget of at least (\d+) bytes: .* budget's (\d+)")
_PURPOSES = {
    "id_map": "the map of node ids",
    "staging": "reading from disk",
    "batch": "a batch",
    "trace": "the trace of batches",
    "convert": "this step",
    "topology": "the neighbour lists",
    "neighbor_cache": "the cache of neighbour lists",
    "feature_cache": "the cache of features",
    "packs": "setting rows aside",
    "history": "the history",
}
"""What memory is for, in statistics and in messages."""
_LEFT = re.compile(
    r"(.*) needs (\d+) bytes, (\d+) of the budget's (\d+) are left(?:: give memory of at least (\d+) bytes)?$"
)
_NOTHING = re.compile(r"not found: \w+ .*: (no such file or directory|not a directory)")
_AGAIN = re.compile(r": not found: stat [^:]*: (?:no such file or directory|not a directory)$")
"""What follows a message that says so itself."""
_EXISTS = re.compile(r"(.* has the tensor .*?|(.*)): already exists; overwrite replaces it")
_REPLACE = "already; pass overwrite=True to replace it"

_TEXT = r'"(?:[^"\\]|\\.)*"'
_TEXTS = re.compile(rf"(?<!=)\[({_TEXT}(?: {_TEXT})*)\]")
"""A list of names as Go writes it, and a name."""
_NO_TEXTS = re.compile(r"\b(are|has|have|of|only) \[\]")
_SHAPE = re.compile(r"\[(-?\d+(?: -?\d+)+)\]")
_KNOWN = re.compile(r"(?:are|has|have|of|only) ('[^']+'(?:, '[^']+')*)(?= and |$)")
_QUOTED = re.compile(r"'([^']+)'")
_MIB = 1 << 20
_BYTES = re.compile(r"\b(\d{7,}) bytes")


def spoken(message: str) -> str:
    """Return a message without packages and classes of errors, with whole MiB as such."""
    return _BYTES.sub(lambda found: least_size(n) if (n := int(found[1])) % _MIB == 0 else found[0], _plain(message))


def _plain(message: str) -> str:
    """Return a message without packages and classes of errors."""
    short = _PREFIX.sub(r"\1", message)
    while (again := _PREFIX.sub(r"\1", short)) != short:
        short = again
    short = _CLASS.sub("", short) or short
    nothing = _NOTHING.fullmatch(short)
    if nothing:
        return nothing[1]
    short = _AGAIN.sub("", short)
    short = _EXISTS.sub(lambda found: f"{found[1]} {OVERWRITE if found[2] is not None else _REPLACE}", short)
    return _suggesting(_in_python(short))


def _in_python(text: str) -> str:
    """Return a message with names, lists and shapes as Python writes them."""
    text = _TEXTS.sub(lambda found: ", ".join(re.findall(_TEXT, found[1])), _NO_TEXTS.sub(r"\1 none at all", text))
    text = re.sub(rf"(?<![=\w]){_TEXT}", lambda found: repr(ast.literal_eval(found[0])), text)
    return _SHAPE.sub(lambda found: f"[{found[1].replace(' ', ', ')}]", text)


def _suggesting(text: str) -> str:
    """Return a message that names something unknown, and ends with the known names, with the nearest of these."""
    unknown, lists = _QUOTED.search(text), list(_KNOWN.finditer(text))
    if unknown is None or not lists or unknown.start() >= lists[0].start() or lists[-1].end() != len(text):
        return text
    known = [name for one in lists for name in _QUOTED.findall(one[1])]
    own = [name.rpartition(".")[2] for name in known]  # without the type before it
    return f"{text}{did_you_mean(unknown[1], [*known, *own])}"


def of_budget(message: str) -> str:
    """Return the message of a budget that is too small, with sizes for people."""
    short = _plain(message)
    least = _LEAST.match(short)
    if least:
        return too_small(int(least[3]), int(least[2]), f"{least[1]} needs")
    left = _LEFT.match(short)
    if left:
        what, _, purpose = left[1].rpartition(": ")
        needing = f"{what}: {_PURPOSES.get(purpose, purpose)}" if what else _PURPOSES.get(purpose, purpose)
        budget, lacks = as_option(int(left[4])), f"{needing} needs {least_size(int(left[2]))}"
        rest = f"give at least {least_size(int(left[5]))}" if left[5] else f"{format_size(int(left[3]))} are left"
        return f"memory={budget} is too small: {lacks}, {rest}"
    return re.sub(r"(\d{4,}) bytes", lambda found: least_size(int(found[1])), short)
