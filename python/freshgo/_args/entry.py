"""Entry points of the public API, whose errors have short tracebacks.

The frames between a call of a user and the line that found the mistake say nothing to the user: a misspelled split of a
:class:`freshgo.Loader` went through eight. An entry point drops them from the traceback of a :class:`FreshgoError`, and
keeps the message, the class, the cause and every frame that is not freshgo's. With the environment variable
``FRESHGO_TRACEBACK=full`` nothing is dropped.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

from freshgo._args.hints import did_you_mean
from freshgo.errors import DTypeError, FreshgoError

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

VARIABLE = "FRESHGO_TRACEBACK"

_KEPT = 2
"""Frames of freshgo that stay at the end of a traceback. With the entry point and its wrapper there are four."""

_SPECIAL = {"__init__", "__call__", "__enter__", "__getitem__", "__iter__", "__len__", "__next__"}


def entry(public: T) -> T:
    """Decorate a function, or a class: then its public methods."""
    if isinstance(public, type):
        for name, member in list(vars(public).items()):
            if not name.startswith("_") or name in _SPECIAL:
                setattr(public, name, _of_class(member))
        return public
    assert callable(public)
    return _wrapped(public)  # type: ignore[return-value]


def _of_class(member: Any) -> Any:
    if isinstance(member, FunctionType):
        return _wrapped(member)
    if isinstance(member, classmethod | staticmethod):
        return type(member)(_wrapped(member.__func__))
    if isinstance(member, property) and member.fget is not None:
        return property(_wrapped(member.fget), member.fset, member.fdel, member.__doc__)
    return member


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **options: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **options)
            except FreshgoError as error:
                raise error.with_traceback(_short(error))  # noqa: B904  (the same error)

        return generator

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except (FreshgoError, TypeError) as error:
            raise _raised(function, error, options)  # noqa: B904  (the same error, or one without a cause)

    return call


def operator(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that torch.compile traces, which sees the function itself."""
    from torch.compiler import is_compiling

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if is_compiling():
            return function(*args, **options)
        try:
            return function(*args, **options)
        except (FreshgoError, TypeError) as error:
            raise _raised(function, error, options)  # noqa: B904  (the same error, or one without a cause)

    return call


def _raised(function: Callable[..., Any], error: Exception, options: Mapping[str, object]) -> Exception:
    """Return what a wrapper raises: the error with a short traceback, or a DTypeError for arguments that the function
    does not take."""
    if isinstance(error, FreshgoError):
        return error.with_traceback(_short(error))
    below = None if error.__traceback__ is None else error.__traceback__.tb_next
    if below is not None:
        return error.with_traceback(below)  # the function was called, and this is not ours
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    hints = (did_you_mean(name, known) for name in options if name not in known)
    misfit = DTypeError(f"{error}{next(hints, '')}".replace(".__init__()", "()"))
    misfit.__suppress_context__ = True
    return misfit


def _short(error: FreshgoError) -> TracebackType | None:
    """Return the traceback below the wrapper, of freshgo's frames the first and the last ones."""
    below = error.__traceback__.tb_next if error.__traceback__ is not None else None
    if os.environ.get(VARIABLE) == "full":
        return below
    frames = []
    while below is not None:
        frames.append(below)
        below = below.tb_next
    ours = [i for i, frame in enumerate(frames) if _is_ours(frame)]
    wrappers = {i for i in ours if frames[i].tb_frame.f_globals is globals()}
    inner = [i for i in ours if i not in wrappers]
    dropped = wrappers | set(inner[1:-_KEPT])
    short: TracebackType | None = None
    for i in reversed(range(len(frames))):
        if i not in dropped:
            frame = frames[i]
            short = TracebackType(short, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return short


def _is_ours(frame: TracebackType) -> bool:
    name: str = frame.tb_frame.f_globals.get("__name__", "")
    return name.partition(".")[0] == "freshgo"
