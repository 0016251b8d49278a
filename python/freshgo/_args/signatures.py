"""Signatures of functions that pass options on, so that editors and notebooks complete all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def passes_on(*targets: Callable[..., Any], without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Show the options of ``targets`` in the place of ``**options`` of a function that passes them on.

    Of the targets, options ``without`` and names that the function itself has are left out.
    """

    def decorate(function: F) -> F:
        shown = dict(inspect.signature(function).parameters)
        (rest,) = (name for name, parameter in shown.items() if parameter.kind is Parameter.VAR_KEYWORD)
        more = shown.pop(rest)
        for target in targets:
            for name, parameter in inspect.signature(target).parameters.items():
                if parameter.kind is Parameter.VAR_KEYWORD:
                    more = parameter
                elif name != "self" and name not in without:
                    shown.setdefault(name, parameter.replace(kind=Parameter.KEYWORD_ONLY))
        signature = inspect.Signature([*shown.values(), more])
        function.__signature__ = signature  # type: ignore[attr-defined]  # which inspect.signature() returns
        return function

    return decorate
