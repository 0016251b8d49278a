"""The commands and their options. This module imports neither torch nor NumPy, so that ``--help`` is quick."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from freshgo._args.choices import FORMS, ORDERS, REDUCTIONS
from freshgo._cli import commands
from freshgo._cli.arguments import (
    Parser,
    add_hot_rows,
    add_hotness,
    add_writing,
    at_least,
    dtype,
    named,
    named_file,
    path,
    path_or_url,
    split,
    typed_file,
)

MIN_NODES = 1000
"""Nodes of the smallest graph that the demo can learn from."""


class _Version(argparse.Action):
    """Prints the version, and which native library this installation uses and why."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        print(commands.version())
        parser.exit()


def make_parser() -> Parser:
    """Return the parser of the ``freshgo`` command."""
    parser = Parser(
        prog="freshgo",
        description="Write, change and check stores: graphs on disk for GNN training in PyTorch.",
        epilog="'freshgo COMMAND --help' lists the options of a command.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and the native library")
    _Commands(parser).add_all()
    return parser


class _Commands:
    def __init__(self, parser: Parser) -> None:
        self._commands = parser.add_subparsers(required=True, metavar="command", dest="command")

    def _add(self, name: str, run: commands.Run, about: str) -> argparse.ArgumentParser:
        command = self._commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument("--quiet", action="store_true", help="print errors only")
        command.add_argument("--traceback", action="store_true", help="print the traceback of an error too")
        command.set_defaults(run=run)
        return command

    def add_all(self) -> None:
        """Add every command."""
        self._add_convert()
        self._add_changes()
        self._add_infer()

        command = self._add("inspect", commands.inspect, "print what a store holds")
        command.add_argument("store", type=path, help="the directory of the store")

        command = self._add("fetch", commands.fetch, "copy a store from a URL to a local disk")
        command.add_argument("url", help="the URL of the store, such as s3://bucket/papers.freshgo")
        command.add_argument("store", type=path, help="the directory to create")
        command.add_argument("--overwrite", action="store_true", help="replace an existing store")

        command = self._add("push", commands.push, "copy a store to a URL")
        command.add_argument("store", type=path, help="the directory of the store")
        command.add_argument("url", help="the URL to create, such as s3://bucket/papers.freshgo")
        command.add_argument("--overwrite", action="store_true", help="replace an existing store")

        command = self._add("verify", commands.verify, "read a whole store and compare it with its checksums")
        command.add_argument("store", type=path, help="the directory of the store")

        about = "generate a graph, train on it out of core and in memory, and compare the losses"
        command = self._add("demo", commands.demo, about)
        command.add_argument("--out", type=path, default=Path("out"), help="directory for the results (default: out)")
        command.add_argument(
            "--nodes", metavar="N", type=at_least(MIN_NODES), default=400_000, help="nodes (default: %(default)s)"
        )
        command.add_argument(
            "--epochs", metavar="N", type=at_least(1), default=2, help="epochs of training (default: %(default)s)"
        )

    def _add_convert(self) -> None:
        command = self._add("convert", commands.convert, "write a directory of .npy files, or tables, as a store")
        command.add_argument(
            "source",
            type=path_or_url,
            nargs="?",
            help="a directory with edge_index.npy and optional <tensor>.npy, <split>_mask.npy and <split>_idx.npy; or "
            "a directory with one such directory per node type and per edge type, named <source>__<relation>__"
            "<target>; or a dataset directory of OGB, MAG240M, IGB or GraphBolt; or a .npz archive; or a .mtx, .gml, "
            ".graphml, .gexf or Pajek file; files may be at URLs, such as s3://",
        )
        command.add_argument("store", type=path, help="the directory to create")
        command.add_argument(
            "--source",
            dest="kind",
            metavar="NAME",
            help="the format of SOURCE, such as npy, npz, ogb, mag240m, igb or graphbolt (default: recognised)",
        )
        command.add_argument(
            "--allow-pickle",
            action=argparse.BooleanOptionalAction,
            help="load splits that are stored as pickles, which can run code; or convert without them (default: an "
            "error)",
        )
        command.add_argument(
            "--edges",
            metavar="FILE",
            type=path,
            action="append",
            help="convert the edges of this .npy or Parquet file, instead of SOURCE; may be given several times, for "
            "edges that follow one another",
        )
        command.add_argument(
            "--tables",
            metavar="SPEC",
            type=path,
            help="convert the tables that this JSON or TOML file describes, instead of SOURCE: node and edge tables by "
            "type, each with the arguments of freshgo.Table",
        )
        add_writing(command, "an existing store")
        command.add_argument(
            "--relayout", metavar="ORDER", choices=ORDERS, help="store node rows in this order: %(choices)s"
        )
        command.add_argument(
            "--weight-attr", metavar="NAME", help="the edge tensor with sampling weights, to store in sampling order"
        )
        command.add_argument(
            "--no-edge-ids", action="store_true", help="leave out the numbers of edges, so that batches have no e_id"
        )
        command.add_argument(
            "--dtype",
            metavar="NAME=DTYPE",
            type=dtype,
            action="append",
            help=f"store a float tensor in fewer bytes, as one of {', '.join(FORMS)}; may be given several times",
        )
        command.add_argument("--clip", action="store_true", help="clip values that overflow --dtype")
        command.add_argument(
            "--isolated-nodes", action="store_true", help="accept far more nodes than edges and tensors refer to"
        )
        add_hotness(command)
        add_hot_rows(command)

    def _add_changes(self) -> None:
        about = "write a store with some tensors and splits of another replaced, added or dropped"
        command = self._add("update", commands.update, about)
        command.add_argument("source", type=path, help="the store to read")
        command.add_argument("store", type=path, help="the directory to create; SOURCE itself with --overwrite")
        command.add_argument(
            "--tensor",
            metavar="[TYPE:]NAME=FILE",
            type=named_file,
            action="append",
            help="a tensor to replace or add, from a .npy file with a row per node or edge; TYPE is a node type, or an "
            "edge type written <source>__<relation>__<target>; may be given several times",
        )
        command.add_argument(
            "--split",
            metavar="[TYPE:]NAME=FILE",
            type=named_file,
            action="append",
            help="a split to replace or add: node ids or a bool mask in a .npy file; may be given several times",
        )
        command.add_argument(
            "--drop",
            metavar="[TYPE:]NAME",
            type=named,
            action="append",
            help="a tensor or split to leave out; may be given several times",
        )
        add_writing(command, "an existing store")

        command = self._add("append", commands.append, "write a store with nodes and edges added to those of another")
        command.add_argument("source", type=path, help="the store to read")
        command.add_argument(
            "new",
            type=path,
            help="a directory with the new nodes and edges, in the layout that 'freshgo convert' reads; edge_index.npy "
            "has ids of old and new nodes",
        )
        command.add_argument("store", type=path, help="the directory to create; SOURCE itself with --overwrite")
        command.add_argument(
            "--keys",
            metavar="[TYPE=]FILE",
            type=typed_file,
            action="append",
            help="for stores converted from tables: the keys of the new nodes, ascending, in a .npy file",
        )
        command.add_argument("--clip", action="store_true", help="clip values that overflow the stored dtype")
        add_writing(command, "an existing store")

        command = self._add("relayout", commands.relayout, "copy a store with its node rows in the order of their use")
        command.add_argument("source", type=path, help="the store to read")
        command.add_argument("store", type=path, help="the directory to create")
        command.add_argument(
            "--order",
            metavar="ORDER",
            choices=ORDERS,
            default="hot+community",
            help="the order of the rows: %(choices)s (default: %(default)s)",
        )
        add_hotness(command)
        add_hot_rows(command)
        add_writing(command, "an existing store")

        command = self._add("shard", commands.shard, "divide the rows of a store's node tensors among hosts")
        command.add_argument("source", type=path, help="the store to divide")
        command.add_argument("out", type=path, help="the directory to create, with a store for each part")
        command.add_argument("--parts", metavar="N", type=at_least(1), required=True, help="the number of parts")
        add_hotness(command)
        add_writing(command, "existing parts")

        command = self._add("propagate", commands.propagate, "precompute aggregated neighbour features in a store")
        command.add_argument("store", type=path, help="the directory of the store")
        command.add_argument(
            "--tensor", metavar="NAME", default="x", help="the node tensor to aggregate (default: %(default)s)"
        )
        command.add_argument(
            "--reduce",
            metavar="REDUCTION",
            choices=REDUCTIONS,
            default="mean",
            help="how to aggregate: %(choices)s (default: %(default)s)",
        )
        command.add_argument("--weight-attr", metavar="NAME", help="the edge tensor to multiply by")
        command.add_argument(
            "--hops", metavar="N", type=at_least(1), default=1, help="how often to aggregate (default: %(default)s)"
        )
        add_writing(command, "an aggregate of the same name")

    def _add_infer(self) -> None:
        command = self._add("infer", commands.infer, "compute a model's output for every node of a store")
        command.add_argument("store", type=path, help="the store to read")
        command.add_argument(
            "out", type=path_or_url, help="the .npy or .parquet file to write, or its URL; with --as a store"
        )
        command.add_argument(
            "--model",
            metavar="MODULE:NAME",
            required=True,
            help="the model: a torch.nn.Module, or a function without arguments that returns one, in a Python module "
            "that can be imported from here; or a file that torch.save wrote of a whole model, with --allow-pickle",
        )
        command.add_argument(
            "--weights",
            metavar="FILE",
            type=path,
            help="a state_dict to load into the model, as torch.save wrote it; it is read without unpickling code",
        )
        command.add_argument(
            "--allow-pickle", action="store_true", help="load a whole model from a file: its pickle can run any code"
        )
        command.add_argument(
            "--as", dest="name", metavar="NAME", help="write the output as this tensor of the store OUT"
        )
        command.add_argument(
            "--tensor", metavar="NAME", default="x", help="the node tensor to compute from (default: %(default)s)"
        )
        command.add_argument("--edge-weight", metavar="NAME", help="the edge tensor to pass as edge_weight")
        command.add_argument("--edge-attr", metavar="NAME", help="the edge tensor to pass as edge_attr")
        command.add_argument(
            "--nodes",
            metavar="SPLIT",
            type=split,
            help="write the output of this split only; in a heterogeneous graph TYPE:SPLIT (default: all nodes)",
        )
        command.add_argument(
            "--batch-size", metavar="N", type=at_least(1), default=1024, help="nodes per batch (default: %(default)s)"
        )
        command.add_argument("--device", metavar="DEVICE", help="where to compute, such as cuda (default: cpu)")
        command.add_argument(
            "--dtype",
            metavar="DTYPE",
            choices=("float32", "float16"),
            default="float32",
            help="the type of the rows on disk: %(choices)s (default: %(default)s)",
        )
        add_writing(command, "an existing output")
