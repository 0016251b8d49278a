"""Arguments of the command line: types of values, groups of options, and errors that suggest the nearest word."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from freshgo._args.choices import FORMS, METRICS
from freshgo._args.hints import did_you_mean
from freshgo._args.urls import is_url

TYPE_SEPARATOR = "__"
"""Between source, relation and target of an edge type, as in the names of directories."""


class UsageError(Exception):
    """Arguments that do not go together; the command ends with status 2."""


class Parser(argparse.ArgumentParser):
    """A parser that says what a misspelled command, option or choice may have meant."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where the options of the command are known."""
        found, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            if word.startswith("-"):
                near = did_you_mean(word.partition("=")[0], self._option_string_actions)
                self.error(f"there is no option {word.partition('=')[0]}{near}")
        if unknown:
            self.error(f"unexpected arguments: {' '.join(unknown)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            allowed = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(
                action, f"expected one of {allowed}, got {value!r}{did_you_mean(str(value), map(str, action.choices))}"
            )

    def error(self, message: str) -> NoReturn:
        """Print one line and end with status 2."""
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help lists what it takes)\n")


def path(text: str) -> Path:
    """A path; an empty one would mean the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)


def path_or_url(text: str) -> Path | str:
    """A path, or a URL that fsspec knows."""
    return text if is_url(text) or text.startswith("file://") else path(text)


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a converter to whole numbers that are at least ``minimum``."""

    def number(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {minimum}, got {text!r}")
        return int(text)

    return number


def dtype(text: str) -> tuple[str, str]:
    """The name of a tensor and how to store it."""
    name, equals, form = text.partition("=")
    if not name or not equals or form not in FORMS:
        raise argparse.ArgumentTypeError(
            f"expected NAME=DTYPE with one of {', '.join(FORMS)}, got {text!r}{did_you_mean(form, FORMS)}"
        )
    return name, form


def counts(text: str) -> list[int]:
    """Neighbours per hop."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers such as 10,10, got {text!r}") from None


Key = str | tuple[str, str, str] | None
"""A node type, an edge type, or None in a homogeneous graph."""


def named(text: str) -> tuple[Key, str]:
    """A name, behind its node type or edge type where there is one: ``x``, ``paper:x``, ``author__writes__paper:w``."""
    of, colon, name = text.rpartition(":")
    parts = tuple(of.split(TYPE_SEPARATOR))
    if not name or (colon and (not all(parts) or len(parts) not in (1, 3))):
        raise argparse.ArgumentTypeError(f"expected NAME, TYPE:NAME or SOURCE__RELATION__TARGET:NAME, got {text!r}")
    return (of if len(parts) == 1 else parts) if colon else None, name  # type: ignore[return-value]


def named_file(text: str) -> tuple[Key, str, Path]:
    """A name with its type, and a file."""
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise argparse.ArgumentTypeError(f"expected [TYPE:]NAME=FILE.npy, got {text!r}")
    return (*named(name), Path(file))


def typed_file(text: str) -> tuple[str, Path]:
    """A file, behind a node type where there is one."""
    of, _, file = text.rpartition("=")
    return of, path(file)


def split(text: str) -> str | tuple[str, str]:
    """A split, behind its node type where there is one."""
    node_type, colon, name = text.rpartition(":")
    return (node_type, name) if colon else name


def add_writing(command: argparse.ArgumentParser, replaced: str) -> None:
    """Add the options of every command that writes a store."""
    command.add_argument(
        "--memory", metavar="SIZE", default="1GiB", help="memory to use, such as 8GiB (default: %(default)s)"
    )
    command.add_argument("--overwrite", action="store_true", help=f"replace {replaced}")


def add_hotness(command: argparse.ArgumentParser) -> None:
    """Add the options that say which rows are used most."""
    command.add_argument(
        "--hotness",
        metavar="METRIC",
        choices=[name for name in METRICS if name != "oracle"],
        help="how to estimate which nodes are read most: %(choices)s (default: expected with --num-neighbors, else "
        "degree)",
    )
    command.add_argument(
        "--num-neighbors", metavar="N,N", type=counts, help="for expected and presc: neighbours per hop, such as 10,10"
    )
    command.add_argument(
        "--input-nodes",
        metavar="SPLIT",
        type=split,
        help="for expected and presc: the split to train on; in a heterogeneous graph TYPE:SPLIT",
    )


def add_hot_rows(command: argparse.ArgumentParser) -> None:
    """Add the option of the order ``hot+community``."""
    command.add_argument(
        "--hot-rows", metavar="N", type=int, help="for hot+community: the number of rows to sort by hotness alone"
    )
