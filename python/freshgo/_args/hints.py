"""Values and names as messages show them, and suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

from freshgo.errors import InvalidArgumentError

T = TypeVar("T")


def nearest(word: object, known: Iterable[T]) -> T | None:
    """Return the known word or edge type that ``word`` may mean, None if none is near."""
    texts = {text: one for one in known if (text := _text(one)) is not None}
    text = _text(word)
    swapped = [one for one in texts if sorted(one) == sorted(text or "")]
    near = [] if text is None else difflib.get_close_matches(text, swapped or texts, 1)
    return texts[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return a suggestion that goes behind a message: ``; did you mean 'train'?``, or nothing if no known word is
    near."""
    near = nearest(word, known)
    return "" if near is None else f"; did you mean {near!r}?"


def listed(names: Iterable[object]) -> str:
    """Return names as a message lists them."""
    return ", ".join(map(repr, names)) or "none at all"


def shortened(value: object) -> str:
    """Return the repr of a value, or its class and the beginning where that is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{type(value).__name__} {text[:60]}..."


def among(word: object, names: Iterable[object]) -> str:
    """Return the names that there are, and the one that may be meant."""
    known = list(names)
    return f"{listed(known)}{did_you_mean(word, known)}"


def only(word: object, names: Iterable[object]) -> str:
    """Return the end of a message that something has no ``word``: ``, only 'train', 'test'``."""
    known = list(names)
    return f", only {among(word, known)}" if known else ": it has none"


def no_weights(name: object, known: Iterable[str], edge_type: object = None) -> InvalidArgumentError:
    """What to raise where ``weight_attr`` names no edge tensor."""
    names = sorted(known)
    there = f"the edge tensors are {among(name, names)}" if names else "there are none"
    of = "" if edge_type is None else f"edge type {edge_type}: "
    return InvalidArgumentError(f"{of}weight_attr must name an edge tensor, got {name!r}: {there}")


def _text(name: object) -> str | None:
    """Return what is compared of a name, None where it is neither a word nor an edge type."""
    if isinstance(name, str):
        return name.lower()
    if isinstance(name, tuple) and all(isinstance(part, str) for part in name):
        return "\0".join(("", *name)).lower()  # so that no word is near an edge type
    return None
