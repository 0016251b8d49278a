"""Reprs of dataclasses with many fields."""

from __future__ import annotations

import dataclasses
from typing import Any


def changed(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that do not have their defaults."""
    found = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if default is dataclasses.MISSING or (value is not default and value != default):
            found[field.name] = value
    return found


def shown(instance: Any, **words: str) -> str:
    """Return the repr of a dataclass with the fields that were changed; ``words`` stand in the place of their reprs."""
    fields = (f"{name}={words.get(name) or repr(value)}" for name, value in changed(instance).items())
    return f"{type(instance).__name__}({', '.join(fields)})"
