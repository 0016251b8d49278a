"""The ``freshgo`` command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from freshgo import __version__, library
from freshgo._args.aggregates import REDUCTIONS
from freshgo._args.narrow import FORMS
from freshgo._sources.recognise import NAMES as SOURCE_NAMES
from freshgo._tables.spec import read_spec
from freshgo.convert import convert
from freshgo.errors import FreshgoError, InvalidArgumentError
from freshgo.policies import METRICS
from freshgo.propagate import propagate
from freshgo.relayout import ORDERS, relayout
from freshgo.shard import shard
from freshgo.store import Store
from freshgo.tables import convert_tables

MIN_NODES = 1000
"""Nodes of the smallest graph that the demo can learn from."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()  # a full disk shows now, not while the interpreter exits
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _forget_output()
        return 1
    except (FreshgoError, OSError) as error:
        print(f"freshgo: {error}", file=sys.stderr)
        if isinstance(error, OSError) and error.filename is None:
            _forget_output()
        return 1
    except KeyboardInterrupt:
        print("freshgo: interrupted", file=sys.stderr)
        return 130
    return 0


def _forget_output() -> None:
    """Point standard output elsewhere: the interpreter flushes it once more at exit, and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _path(text: str) -> Path:
    """A path; an empty one would mean the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)


def _at_least(minimum: int) -> Callable[[str], int]:
    """Return what reads a whole number that is not smaller."""

    def number(text: str) -> int:
        if not text.lstrip("+-").isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {minimum}, got {text!r}")
        return int(text)

    return number


class _Version(argparse.Action):
    """Prints the version, and which native library this installation uses and why."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        print(f"freshgo {__version__}")
        try:
            print(library())
        except FreshgoError as error:
            print(error)
        parser.exit()


def _dtype(text: str) -> tuple[str, str]:
    name, equals, form = text.partition("=")
    if not name or not equals or form not in FORMS:
        raise argparse.ArgumentTypeError(f"expected NAME=DTYPE with one of {', '.join(FORMS)}, got {text!r}")
    return name, form


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="freshgo", description="Graphs on disk for GNN training.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the native library")
    commands = parser.add_subparsers(required=True, metavar="command")

    command = commands.add_parser("convert", help="write a directory of .npy files, or tables, as a store")
    command.add_argument(
        "source",
        type=_path,
        nargs="?",
        help="directory with edge_index.npy and further <tensor>.npy, <split>_mask.npy, <split>_idx.npy; or with such "
        "a directory for each type of nodes, and of edges as <source>__<relation>__<target>; or a directory of OGB, "
        "MAG240M, IGB or GraphBolt; or a .npz archive",
    )
    command.add_argument("store", type=_path, help="directory to create")
    command.add_argument(
        "--source",
        dest="kind",
        metavar="NAME",
        choices=[*SOURCE_NAMES],
        help="what the directory is, if that is not to be recognised: %(choices)s",
    )
    command.add_argument(
        "--allow-pickle",
        action=argparse.BooleanOptionalAction,
        help="unpickle splits that are in pickles, which run code, or go without; by default they are errors",
    )
    command.add_argument(
        "--tables",
        metavar="SPEC",
        type=_path,
        help="convert the tables that this JSON or TOML file describes, instead of a directory: nodes and edges by "
        "type, each with the source and the columns of freshgo.Table",
    )
    _add_writing(command, "a store that is there")
    command.add_argument(
        "--relayout", metavar="ORDER", choices=ORDERS, help="and store rows in this order: %(choices)s"
    )
    command.add_argument(
        "--weight-attr", metavar="NAME", help="the edge tensor to draw by: store it by target too, with sums"
    )
    command.add_argument(
        "--dtype",
        metavar="NAME=DTYPE",
        type=_dtype,
        action="append",
        help=f"store a tensor of floats in fewer bytes: {', '.join(FORMS)}; may be given several times",
    )
    command.add_argument("--clip", action="store_true", help="numbers too large for --dtype become its largest")
    command.add_argument(
        "--isolated-nodes", action="store_true", help="confirm far more nodes than edges and tensors can name"
    )
    _add_hotness(command)
    _add_hot_rows(command)
    command.set_defaults(run=_convert)

    command = commands.add_parser("relayout", help="copy a store with its rows in the order of their use")
    command.add_argument("source", type=_path, help="the store to copy")
    command.add_argument("store", type=_path, help="directory to create")
    command.add_argument("--order", choices=ORDERS, default="hot+community", help="of the rows (default: %(default)s)")
    _add_hotness(command)
    _add_hot_rows(command)
    _add_writing(command, "a store that is there")
    command.set_defaults(run=_relayout)

    command = commands.add_parser("shard", help="divide the rows of a store's node tensors among hosts")
    command.add_argument("source", type=_path, help="the store to divide")
    command.add_argument("out", type=_path, help="directory to create, with a store for each part")
    command.add_argument("--parts", metavar="N", type=_at_least(1), required=True, help="how many, such as the hosts")
    _add_hotness(command)
    _add_writing(command, "parts that are there")
    command.set_defaults(run=_shard)

    command = commands.add_parser("propagate", help="add to a store what features of in-neighbours add up to")
    command.add_argument("store", type=_path, help="its directory")
    command.add_argument("--tensor", metavar="NAME", default="x", help="what is added up (default: %(default)s)")
    command.add_argument("--reduce", choices=REDUCTIONS, default="mean", help="how (default: %(default)s)")
    command.add_argument("--weight-attr", metavar="NAME", help="the edge tensor to multiply by")
    command.add_argument("--hops", metavar="N", type=_at_least(1), default=1, help="how often (default: %(default)s)")
    _add_writing(command, "what was computed under this name")
    command.set_defaults(run=_propagate)

    command = commands.add_parser("inspect", help="print what a store holds")
    command.add_argument("store", type=_path, help="its directory")
    command.set_defaults(run=_inspect)

    command = commands.add_parser("verify", help="read a whole store and compare it with its checksums")
    command.add_argument("store", type=_path, help="its directory")
    command.set_defaults(run=_verify)

    command = commands.add_parser("demo", help="generate a graph, train on it out of core and from memory, compare")
    command.add_argument("--out", type=_path, default=Path("out"), help="directory for the results (default: out)")
    command.add_argument(
        "--nodes", type=_at_least(MIN_NODES), default=400_000, help="size of the graph (default: %(default)s)"
    )
    command.add_argument("--epochs", type=_at_least(1), default=2, help="epochs of training (default: %(default)s)")
    command.set_defaults(run=_demo)
    return parser


def _add_writing(command: argparse.ArgumentParser, replaced: str) -> None:
    """The options of every command that writes a store."""
    command.add_argument("--memory", default="1GiB", help="how much memory to use, such as 8GiB (default: %(default)s)")
    command.add_argument("--overwrite", action="store_true", help=f"replace {replaced}")


def _add_hotness(command: argparse.ArgumentParser) -> None:
    """The options that say which rows are used most."""
    command.add_argument(
        "--hotness",
        metavar="METRIC",
        choices=[name for name in METRICS if name != "oracle"],
        help="how hot a node is: %(choices)s (default: expected with --num-neighbors, else degree)",
    )
    command.add_argument(
        "--num-neighbors", metavar="N,N", type=_counts, help="for expected and presc: neighbours per hop, such as 10,10"
    )
    command.add_argument(
        "--input-nodes",
        metavar="SPLIT",
        type=_input_nodes,
        help="for these two: the split that is trained on; of a heterogeneous graph TYPE:SPLIT",
    )


def _add_hot_rows(command: argparse.ArgumentParser) -> None:
    command.add_argument("--hot-rows", metavar="N", type=int, help="rows that hot+community lays out by hotness alone")


def _counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers such as 10,10, got {text!r}") from None


def _input_nodes(text: str) -> str | tuple[str, str]:
    """A split, with its node type where there is one."""
    node_type, colon, split = text.rpartition(":")
    return (node_type, split) if colon else split


def _writing(options: argparse.Namespace) -> dict[str, Any]:
    return {"memory": options.memory, "overwrite": options.overwrite}


def _hotness(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "hotness": options.hotness,
        "num_neighbors": options.num_neighbors,
        "input_nodes": options.input_nodes,
    }


def _convert(options: argparse.Namespace) -> None:
    given = {**_hotness(options), "hot_rows": options.hot_rows}
    order = None if options.relayout is None else {"order": options.relayout, **given}
    if order is None and any(value is not None for value in given.values()):
        raise InvalidArgumentError("--hotness, --num-neighbors, --input-nodes and --hot-rows need --relayout")
    if (options.source is None) == (options.tables is None):
        raise InvalidArgumentError("give a directory to convert and the store, or --tables SPEC and the store")
    common: dict[str, Any] = {
        **_writing(options),
        "relayout": order,
        "weight_attr": options.weight_attr,
        "dtype": dict(options.dtype or ()),
        "clip": options.clip,
    }
    if options.tables is not None:
        if options.isolated_nodes:
            raise InvalidArgumentError("--isolated-nodes is for a directory: tables name their nodes")
        if options.kind is not None or options.allow_pickle is not None:
            raise InvalidArgumentError("--source and --allow-pickle are for a directory, not for tables")
        store = convert_tables(**read_spec(options.tables), path=options.store, **common)
    else:
        store = convert(
            options.source,
            options.store,
            source=options.kind,
            allow_pickle=options.allow_pickle,
            isolated_nodes=options.isolated_nodes,
            **common,
        )
    with store:
        print(store.inspect())


def _relayout(options: argparse.Namespace) -> None:
    given = {**_hotness(options), **_writing(options)}
    with relayout(options.source, options.store, order=options.order, hot_rows=options.hot_rows, **given) as store:
        print(store.inspect())


def _shard(options: argparse.Namespace) -> None:
    path = shard(options.source, options.out, parts=options.parts, **_hotness(options), **_writing(options))
    for name in ("graph", *(f"part-{part}" for part in range(options.parts))):
        with Store.open(path / name) as store:
            print(store.inspect())


def _propagate(options: argparse.Namespace) -> None:
    with propagate(
        options.store,
        options.tensor,
        reduce=options.reduce,
        weight_attr=options.weight_attr,
        hops=options.hops,
        **_writing(options),
    ) as store:
        print(store.inspect())


def _inspect(options: argparse.Namespace) -> None:
    with Store.open(options.store) as store:
        print(store.inspect())


def _verify(options: argparse.Namespace) -> None:
    with Store.open(options.store) as store:
        store.verify(progress=True)
        print(f"{store.path}: every block matches its checksum")


def _demo(options: argparse.Namespace) -> None:
    from freshgo.demo import demo  # imports what only the demo needs

    demo(options.out, options.nodes, options.epochs)
