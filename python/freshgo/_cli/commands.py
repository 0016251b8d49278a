"""What each command does. Rooms that import torch are imported by the commands that need them."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from freshgo._args.described import describe
from freshgo._args.hints import did_you_mean
from freshgo._cli.arguments import Key, UsageError

if TYPE_CHECKING:
    import torch

    from freshgo.store import Store


class Answer(NamedTuple):
    """What a command prints: as text, or as JSON."""

    text: str
    data: Any


Run = Callable[[argparse.Namespace], Answer]


def version() -> str:
    """Return the version, and which native library this installation uses and why."""
    import freshgo

    try:
        return f"freshgo {freshgo.__version__}\n{freshgo.library()}"
    except freshgo.FreshgoError as error:
        return f"freshgo {freshgo.__version__}\n{error}"


def convert(options: argparse.Namespace) -> Answer:
    """Convert a directory or tables."""
    given = {**_hotness(options), "hot_rows": options.hot_rows}
    order = None if options.relayout is None else {"order": options.relayout, **given}
    if order is None and any(value is not None for value in given.values()):
        raise UsageError("--hotness, --num-neighbors, --input-nodes and --hot-rows need --relayout")
    if sum(given is not None for given in (options.source, options.tables, options.edges)) != 1:
        raise UsageError("expected SOURCE STORE, --edges FILE STORE, or --tables SPEC STORE")
    common: dict[str, Any] = {
        **_writing(options),
        "relayout": order,
        "weight_attr": options.weight_attr,
        "dtype": dict(options.dtype or ()),
        "clip": options.clip,
    }
    if options.tables is not None:
        if options.isolated_nodes:
            raise UsageError("--isolated-nodes cannot be used with --tables, which name every node")
        if options.no_edge_ids:
            raise UsageError("--no-edge-ids cannot be used with --tables, whose edges are sorted by target")
        if options.kind is not None or options.allow_pickle is not None:
            raise UsageError("--source and --allow-pickle cannot be used with --tables")
        from freshgo._tables.spec import read_spec
        from freshgo.tables import convert_tables

        return _written(convert_tables(**read_spec(options.tables), path=options.store, **common))
    from freshgo.convert import convert

    store = convert(
        options.edges or options.source,
        options.store,
        source=options.kind,
        allow_pickle=options.allow_pickle,
        isolated_nodes=options.isolated_nodes,
        edge_ids=not options.no_edge_ids,
        **common,
    )
    return _written(store)


def update(options: argparse.Namespace) -> Answer:
    """Replace, add and drop tensors and splits."""
    from freshgo.update import update

    if not (options.tensor or options.split or options.drop):
        raise UsageError("nothing to change: give --tensor, --split or --drop")
    tensors, splits, drop = _ByType("--tensor"), _ByType("--split"), _ByType("--drop")
    for key, name, file in options.tensor or ():
        tensors.add(key, name, file)
    for key, name, file in options.split or ():
        splits.add(key, name, _array(file))
    for key, name in options.drop or ():
        drop.add(key, name, None)
    dropped = {key: list(names) for key, names in drop.by_type.items()} or list(drop.plain)
    changed: dict[str, Any] = {"tensors": tensors.given(), "splits": splits.given(), "drop": dropped}
    return _written(update(options.source, options.store, **changed, **_writing(options)))


class _ByType:
    """Names that were given with their types or, in a homogeneous graph, without."""

    def __init__(self, option: str) -> None:
        self._option = option
        self.plain: dict[str, Any] = {}
        self.by_type: dict[Any, dict[str, Any]] = {}

    def add(self, key: Key, name: str, value: Any) -> None:
        among = self.plain if key is None else self.by_type.setdefault(key, {})
        if name in among:
            raise UsageError(f"{self._option} has {name} twice")
        among[name] = value
        if self.plain and self.by_type:
            raise UsageError(f"{self._option} must have a type for every name, or for none in a homogeneous graph")

    def given(self) -> dict[Any, Any]:
        return self.by_type or self.plain


def append(options: argparse.Namespace) -> Answer:
    """Add nodes and edges."""
    from freshgo._args.npy_files import is_of_types, read_directory, read_types
    from freshgo.append import append
    from freshgo.store import Store

    with Store.open(options.source) as store:
        nodes: Any
        edges: Any
        if is_of_types(options.new) or store.node_types:
            found = read_types(options.new)
            nodes = {key: of for key, of in found.items() if isinstance(key, str)}
            edges = {key: of for key, of in found.items() if not isinstance(key, str)}
        else:
            found = read_directory(options.new)
            of_edges = {"edge_index", *(name for name, tensor in store.tensors.items() if tensor.level == "edge")}
            nodes = {name: value for name, value in found.items() if name not in of_edges} or None
            edges = {name: value for name, value in found.items() if name in of_edges} or None
        keys = {key: _array(file) for key, file in options.keys or ()}
        given = keys[""] if set(keys) == {""} else keys or None
        return _written(
            append(store, options.store, nodes=nodes, edges=edges, keys=given, clip=options.clip, **_writing(options))
        )


def relayout(options: argparse.Namespace) -> Answer:
    """Copy a store with its rows in another order."""
    from freshgo.relayout import relayout

    given = {**_hotness(options), **_writing(options)}
    return _written(relayout(options.source, options.store, order=options.order, hot_rows=options.hot_rows, **given))


def shard(options: argparse.Namespace) -> Answer:
    """Divide the rows of a store."""
    from freshgo.shard import shard
    from freshgo.store import Store

    out = shard(options.source, options.out, parts=options.parts, **_hotness(options), **_writing(options))
    names = ("graph", *(f"part-{part}" for part in range(options.parts)))
    answers = [_written(Store.open(out / name)) for name in names]
    return Answer("\n".join(answer.text for answer in answers), [answer.data for answer in answers])


def propagate(options: argparse.Namespace) -> Answer:
    """Compute aggregates."""
    from freshgo.propagate import propagate

    store = propagate(
        options.store,
        options.tensor,
        reduce=options.reduce,
        weight_attr=options.weight_attr,
        hops=options.hops,
        **_writing(options),
    )
    return _written(store)


def infer(options: argparse.Namespace) -> Answer:
    """Compute the output of a model."""
    import torch

    from freshgo.infer import infer

    out = infer(
        _model(options),
        options.store,
        options.out if options.name is None else (options.out, options.name),
        nodes=options.nodes,
        tensor=options.tensor,
        edge_weight=options.edge_weight,
        edge_attr=options.edge_attr,
        batch_size=options.batch_size,
        device=options.device,
        dtype=getattr(torch, options.dtype),
        **_writing(options),
    )
    what = "" if options.name is None else f", tensor {options.name!r}"
    return Answer(f"{out}{what}", {"path": str(out), **({} if options.name is None else {"tensor": options.name})})


def _model(options: argparse.Namespace) -> torch.nn.Module:
    """Return the model of ``--model`` with ``--weights`` loaded, in evaluation mode."""
    import torch

    model: Any
    if options.allow_pickle:
        model = torch.load(options.model, map_location="cpu", weights_only=False)
    else:
        model = _imported(options.model)
        if not isinstance(model, torch.nn.Module) and callable(model):
            model = model()
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"--model {options.model} must be a torch.nn.Module, got {type(model).__name__}")
    if options.weights is not None:
        try:
            model.load_state_dict(torch.load(options.weights, map_location="cpu", weights_only=True))
        except OSError:
            raise
        except Exception as error:  # a foreign file, a whole model, names or shapes of another model
            reason = " ".join(str(error).split())
            raise UsageError(f"--weights {options.weights} does not fit the model: {reason[:300]}") from error
    model.eval()
    if options.device is not None:
        model.to(options.device)
    return model


def _imported(name: str) -> Any:
    """Return ``module:attribute``; modules in the current directory are found, as for ``python -m``."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        file = Path(name).suffix in (".pt", ".pth", ".bin", ".ckpt")
        how = "loading a whole model from a file needs --allow-pickle" if file else "such as models:make"
        raise UsageError(f"--model must be MODULE:NAME, got {name!r}: {how}")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (an entry of sys.path is a string)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"--model {name}: cannot import {module!r}: {error}") from error
    finally:
        sys.path.pop(0)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UsageError(f"--model {name}: {module!r} has no {part!r}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    return found


def inspect(options: argparse.Namespace) -> Answer:
    """Describe a store."""
    with _native_store(options.store) as store:
        info = store.describe()
    return Answer(describe(info), info)


def fetch(options: argparse.Namespace) -> Answer:
    """Copy a store from a URL."""
    from freshgo.transfer import fetch

    return _written(fetch(options.url, options.store, overwrite=options.overwrite, progress=_progress(options)))


def push(options: argparse.Namespace) -> Answer:
    """Copy a store to a URL."""
    from freshgo.transfer import push

    url = push(options.store, options.url, overwrite=options.overwrite, progress=_progress(options))
    return Answer(f"{options.store}: copied to {url}", {"path": str(options.store), "url": url})


def verify(options: argparse.Namespace) -> Answer:
    """Compare a store with its checksums."""
    from freshgo._args.progress import progress_of

    with _native_store(options.store) as store, progress_of(_progress(options)) as report:
        store.verify(report)
        info = store.describe()
    data = {"path": info["path"], "uuid": info["uuid"], "n_bytes": info["n_bytes"], "verified": True}
    return Answer(f"{info['path']}: every block matches its checksum", data)


@contextlib.contextmanager
def _native_store(path: Path) -> Any:
    """Open a store without torch. Describing and verifying need no CUDA, whose library would be chosen by torch."""
    from freshgo._native import abi
    from freshgo._native.store import Store as NativeStore

    abi.load(cuda=False)
    store = NativeStore(path)
    try:
        yield store
    finally:
        store.close()


def demo(options: argparse.Namespace) -> Answer:
    """Run the demo."""
    from freshgo.demo import demo

    silent = options.quiet or options.json
    with contextlib.redirect_stdout(io.StringIO()) if silent else contextlib.nullcontext():
        return Answer("", demo(options.out, options.nodes, options.epochs, progress=not options.quiet))


def _written(store: Store) -> Answer:
    """Describe a store that was written, and close it."""
    with store:
        return Answer(store.inspect(), store._contents.info)


def _array(file: Path) -> Any:
    """Read a .npy file; nothing is unpickled."""
    import numpy as np

    from freshgo._args.npy_files import read_npy_header

    read_npy_header(file)  # raises typed errors
    return np.load(file, allow_pickle=False)


def _progress(options: argparse.Namespace) -> bool:
    """Show progress to people only: not in a pipe or a log."""
    return not options.quiet and sys.stderr is not None and sys.stderr.isatty()


def _writing(options: argparse.Namespace) -> dict[str, Any]:
    return {"memory": options.memory, "overwrite": options.overwrite, "progress": _progress(options)}


def _hotness(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "hotness": options.hotness,
        "num_neighbors": options.num_neighbors,
        "input_nodes": options.input_nodes,
    }
