"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return a suggestion that goes behind a message: ``; did you mean 'train'?``, or nothing if no known word is
    near."""
    if not isinstance(word, str):
        return ""
    words = {text.lower(): text for text in known if isinstance(text, str)}
    near = difflib.get_close_matches(word.lower(), words, 1)
    return f"; did you mean {words[near[0]]!r}?" if near else ""
