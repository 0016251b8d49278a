"""Every option of a loader: who knows of it, and what is said of others."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import warnings
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from flat_options import grouped
from torch.utils.data import RandomSampler

import freshgo
from freshgo import Auto, Belady, Device, Disk, History, Labor, LinkLoader, Loader, Ranks, errors
from freshgo._args import choices
from freshgo._loader import keywords
from freshgo._native import loader as native_loader
from freshgo._native.options import loader_options, raw_options
from freshgo.options import LinkOptions, LoaderOptions, ModuleOptions, PyGOptions
from freshgo.samplers import NAMED

GRAPH: dict[str, Any] = {
    "edge_index": torch.arange(120).view(2, 60) % 37,
    "x": torch.arange(37 * 64.0).view(37, 64),
    "w": torch.arange(60.0),
    "t": torch.arange(60),
}
GROUPS = {"cache": Auto, "device": Device, "disk": Disk, "ranks": Ranks}
BATCHES = {"state", "ranks", "host", "library"}
"""Who knows of an option that batches depend on: a saved state, ranks that begin an epoch, ranks that share a loader,
and the library."""
MADE = {"host", "library"}
"""Who knows of an option of how batches are made."""

TIMES = {"time_attr": "t", "input_time": torch.arange(37)}
SMALL = {"memory": "64MiB", "feature_cache": 2000, "neighbor_cache": 0}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "num_neighbors": ({}, {"num_neighbors": [3]}, BATCHES),
    "input_nodes": ({}, {"input_nodes": [1, 2]}, BATCHES),
    "batch_size": ({}, {"batch_size": 3}, BATCHES),
    "shuffle": ({}, {"shuffle": True}, BATCHES),
    "drop_last": ({}, {"drop_last": True}, BATCHES),
    "replace": ({}, {"replace": True}, BATCHES),
    "weight_attr": ({}, {"weight_attr": "w"}, BATCHES),
    "neighbor_sampler": ({}, {"neighbor_sampler": "labor"}, BATCHES),
    "sampler": ({}, {"sampler": RandomSampler(range(37))}, BATCHES),
    "input_weight": ({}, {"input_weight": [1.0] * 37}, BATCHES),
    "disjoint": ({}, {"disjoint": True}, BATCHES),
    "time_attr": ({}, TIMES, BATCHES),
    "temporal_strategy": (TIMES, {"temporal_strategy": "last"}, BATCHES),
    "time_window": (TIMES, {"time_window": 5}, BATCHES),
    "input_time": (TIMES, {"input_time": torch.arange(37) + 1}, BATCHES),
    "seed": ({}, {"seed": 1}, BATCHES),
    "subgraph_type": ({}, {"subgraph_type": "induced"}, BATCHES),
    "pad": ({}, {"pad": True}, BATCHES),
    "first_layer": ({}, {"first_layer": "mean"}, BATCHES),
    "return_edge_id": ({}, {"return_edge_id": False}, MADE),
    "transpose": ({}, {"transpose": True}, MADE),
    "feature_dtype": ({}, {"feature_dtype": "stored"}, MADE),
    "num_workers": ({}, {"num_workers": 7}, MADE),
    "prefetch": ({}, {"prefetch": 3}, MADE),
    "memory": ({}, {"memory": "63MiB"}, MADE),
    "feature_cache": ({}, {"feature_cache": 100}, MADE),
    "neighbor_cache": ({}, {"neighbor_cache": 0}, MADE),
    "cache": ({}, {"cache": "lru"}, MADE),
    "superbatch": ({}, {"superbatch": 4}, MADE),
    "carry_over": ({}, {"carry_over": False}, MADE),
    "lookahead": ({}, {"lookahead": False}, MADE),
    "transfer": ({}, {"transfer": "scan"}, MADE),
    "reorder": (SMALL, {"cache": Belady(reorder=2)}, BATCHES),
    "trace_memory": ({}, {"trace_memory": "1MiB"}, MADE),
    "buffer_memory": ({}, {"buffer_memory": "1MiB"}, MADE),
    "scratch": ({}, {"scratch": Path("/")}, MADE),
    "scratch_size": ({}, {"scratch_size": 0}, MADE),
    "io": ({}, {"io": "pread"}, MADE),
    "checksums": ({}, {"checksums": True}, MADE),
    "uneven": ({}, {"uneven": "join"}, {"ranks"}),
    "history": ({"num_neighbors": [2, 2]}, {"history": History()}, {"ranks", "library"}),
    "embeddings": ({}, {}, set()),  # of a table of the nodes of a store
    "transform": ({}, {"transform": len}, set()),
    "transform_workers": ({"transform": len}, {"transform_workers": 2}, {"library"}),
    "edge_index": ({}, {"edge_index": "EdgeIndex"}, set()),
    "progress": ({}, {"progress": False}, set()),
    # They say which batches of the same ones a process takes, how, and where it has them.
    "rank": ({"world_size": 2, "rank": 0}, {"rank": 1}, set()),
    "world_size": ({"world_size": 2, "rank": 0}, {"world_size": 3}, set()),
    "share": ({}, {"share": "host"}, set()),
    "features": ({}, {}, set()),  # of the directory of freshgo.shard
    "exchange": ({}, {}, set()),
    "device": ({}, {"device": "cpu"}, set()),
    "on": ({}, {"device": Device("cpu")}, set()),
    "sample_on": ({}, {}, set()),  # of a machine with CUDA
    "lists_on": ({}, {}, set()),  # of a machine with CUDA
    "pin_memory": ({}, {}, set()),  # of a machine with CUDA
    "device_cache": ({}, {}, set()),
    "disk": ({}, {}, set()),
    "ranks": ({}, {}, set()),
}
"""Every option: others that it needs, itself with another value, and who knows of it."""


LINKS = {"edge_label_index": torch.tensor([[1, 2, 3], [4, 5, 6]])}
TIMED = {**LINKS, "time_attr": "t", "edge_label_time": torch.arange(3)}
LINK_CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "edge_label_index": (LINKS, {"edge_label_index": torch.tensor([[1, 2, 3], [4, 5, 7]])}, BATCHES),
    "edge_label": (LINKS, {"edge_label": torch.tensor([1, 0, 1])}, BATCHES - {"library"}),
    "edge_label_time": (TIMED, {"edge_label_time": torch.arange(3) + 1}, BATCHES),
    "neg_sampling": (LINKS, {"neg_sampling": "triplet"}, BATCHES),
    "neg_sampling_ratio": (LINKS, {"neg_sampling_ratio": 2.0}, BATCHES),
    "strict_negatives": ({**LINKS, "neg_sampling": "binary"}, {"strict_negatives": True}, BATCHES),
    "exclude_seed_edges": (LINKS, {"exclude_seed_edges": "reverse"}, BATCHES),
}
"""The options that only a LinkLoader has."""
SAMPLER_CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    f"{field.name} of {name}": ({"neighbor_sampler": kind()}, {"neighbor_sampler": changed}, expected)
    for name, kind, given in [("labor", Labor, {"batch_dependency": 3, "layer_dependency": True, "edge_weight": False})]
    for field in dataclasses.fields(kind)
    for changed in [kind(**{field.name: given[field.name]})]
    for expected in [MADE if field.name == "edge_weight" else BATCHES]
}
"""The options of samplers that are chosen by name."""

HOW = "batches are made so, and are the same: the library makes them, and for all ranks of a host"
BRINGS = "batches bring more or less of the same draws: a loop that goes on may ask for something else"
WHERE = "it says which batches of the same ones a process takes, or where it has them"
OWN = "each process does this by itself with batches that it has, or waits for"
GROUP = "its fields are options of their own"
WHY: dict[str, str] = {
    **dict.fromkeys(("return_edge_id", "transpose", "feature_dtype", "edge_weight of labor"), BRINGS),
    **dict.fromkeys(("num_workers", "prefetch", "memory", "feature_cache", "neighbor_cache", "cache"), HOW),
    **dict.fromkeys(("superbatch", "carry_over", "lookahead", "transfer", "trace_memory", "buffer_memory"), HOW),
    **dict.fromkeys(("scratch", "scratch_size", "io", "checksums"), HOW),
    **dict.fromkeys(("rank", "world_size", "share", "features", "exchange", "device", "pin_memory"), WHERE),
    **dict.fromkeys(("device_cache", "on"), WHERE),
    **dict.fromkeys(("sample_on", "lists_on"), HOW),
    **dict.fromkeys(("disk", "ranks"), GROUP),
    **dict.fromkeys(("transform", "edge_index", "progress"), OWN),
    "transform_workers": f"{OWN}; the library learns how many it holds at a time",
    "uneven": "ranks agree on it, each epoch anew: a state is of any number of ranks",
    "history": "a history has a state of its own, and no two ranks of a host share one",
    "embeddings": "tables have states of their own, and one process trains them",
    "edge_label": "labels are given to batches in Python",
}
"""Why not all of state, ranks, host and library know of an option."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("options") / "graph"
    freshgo.convert(GRAPH, path, progress=False).close()
    freshgo.propagate(path, progress=False).close()
    return path


def test_every_option_has_a_case() -> None:
    names = {name for name in inspect.signature(Loader).parameters if name not in ("data", "pyg_options")}
    fields = {field.name for kind in GROUPS.values() for field in dataclasses.fields(kind)}
    assert CASES.keys() == names | fields
    assert not names & fields
    assert len(names | {"data"}) <= 40


def test_every_option_is_known_or_has_a_reason() -> None:
    cases = {**CASES, **LINK_CASES, **SAMPLER_CASES}
    assert {option for option, (*_, expected) in cases.items() if expected != BATCHES} == WHY.keys()
    own = inspect.signature(LinkLoader).parameters.keys() - inspect.signature(Loader).parameters.keys()
    assert own == LINK_CASES.keys()
    assert {name.rpartition(" of ")[2] for name in SAMPLER_CASES} == NAMED.keys()


def known(path: Path, options: dict[str, Any], kind: Any = Loader) -> dict[str, str]:
    """What is known of a loader's options, by who knows it."""
    said: list[Any] = []
    with kind(path, **grouped(**{"num_neighbors": [2], "memory": "64MiB", **options})) as loader:
        raw_options(loader._engine.options)  # which raises for a name that is no member of the struct
        loader._engine._agreement.gather = lambda mine: [said.append(dict(mine)) or dict(mine)]  # type: ignore[method-assign, func-returns-value]
        loader._engine._agree(loader._engine.ranks.now())
        return {
            "state": json.dumps(loader.state_dict()["config"]),
            "ranks": json.dumps(said),
            "host": json.dumps(loader._engine.request.described(loader._engine.options), default=str),
            "library": repr({name: value for name, value in loader._engine.options.items() if name != "calibration"}),
        }


@pytest.mark.parametrize("option", [name for name, (_, changed, _) in CASES.items() if changed])
def test_who_knows_of_an_option(path: Path, option: str) -> None:
    needs, changed, expected = CASES[option]
    if option == "edge_index":
        pytest.importorskip("torch_geometric")
    before, after = known(path, needs), known(path, {**needs, **changed})
    assert {who for who in before if before[who] != after[who]} == expected


@pytest.mark.parametrize("option", [*LINK_CASES, *SAMPLER_CASES])
def test_who_knows_of_an_option_of_links_and_samplers(path: Path, option: str) -> None:
    kind = LinkLoader if option in LINK_CASES else Loader
    needs, changed, expected = {**LINK_CASES, **SAMPLER_CASES}[option]
    before, after = known(path, needs, kind), known(path, {**needs, **changed}, kind)
    assert {who for who in before if before[who] != after[who]} == expected


def test_kinds_of_hotness_are_the_ones_of_the_library(path: Path) -> None:
    with freshgo.Store.open(path) as store, pytest.raises(errors.InvalidArgumentError) as caught:
        native_loader.hotness(store._contents.native, 37, loader_options(cache="none", batch_size=1))
    assert tuple(re.findall(r"'([\w-]+)'", str(caught.value).partition(", got")[0])) == choices.METRICS
    assert set(choices.METRICS) < set(get_args(choices.PolicyName))


STATE = {
    "version": 1,
    "epoch": 0,
    "batches": 1,
    "config": {
        "graph": "memory 13 nodes 20 edges 289f02ca97e32a38",
        "num_neighbors": [2, 1],
        "input_nodes": "3d3140a22b7abc81",
        "batch_size": 2,
        "shuffle": True,
        "drop_last": False,
        "replace": False,
        "seed": 7,
        "weight_attr": None,
        "labor": None,
        "walks": None,
        "input_weight": None,
        "subgraph_type": None,
        "disjoint": None,
        "time_attr": None,
        "temporal_strategy": None,
        "time_window": None,
        "input_time": None,
        "reorder": None,
    },
}
"""Saved when ``io``, ``transfer`` and ``rank`` were options of a loader."""


def test_a_state_of_before_goes_on() -> None:
    data = {"edge_index": torch.arange(40).view(2, 20) % 13, "x": torch.arange(26.0).view(13, 2), "t": torch.arange(20)}
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 7, "cache": Auto(transfer="scan")}
    ranks = Ranks(rank=0, world_size=1, uneven="drop")
    with Loader(data, [2, 1], [5, 3, 1, 2, 0], ranks=ranks, disk=Disk(io="pread"), **options) as loader:
        assert loader.state_dict() == {**STATE, "batches": 0}
        loader.load_state_dict(json.loads(json.dumps(STATE)))
        assert [batch.n_id.tolist() for batch in loader] == [[2, 3, 8, 9, 1], [1, 7, 0]]
        assert [batch.n_id.tolist() for batch in loader] == [[2, 5, 8, 11, 1, 4], [1, 0, 7, 6, 12], [3, 9, 2]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"io": "pread"}, r"argument 'io': give disk=Disk\(io=\.\.\.\)"),
        ({"checksum": True}, r"argument 'checksum'; did you mean disk=Disk\(checksums=\.\.\.\)\?"),
        ({"transfer": "scan"}, r"argument 'transfer': give cache=Auto\(transfer=\.\.\.\)"),
        ({"reorder": 4}, r"give cache=Auto\(reorder=\.\.\.\) or cache=Online\(name, reorder=\.\.\.\)"),
        ({"rank": 0, "world_size": 1}, r"argument 'rank': give ranks=Ranks\(rank=\.\.\.\)"),
        ({"bach_size": 10}, "argument 'bach_size'; did you mean 'batch_size'"),
        ({"disk": "pread"}, r"disk must be a freshgo\.Disk or None, got 'pread'"),
        ({"ranks": {"rank": 0}}, r"ranks must be a freshgo\.Ranks or None, got \{'rank': 0\}"),
        ({"cache": Disk()}, r"cache must be a name .*, an Auto, Belady, Hotness or Online object"),
    ],
)
@pytest.mark.parametrize("kind", [Loader, LinkLoader])
def test_options_in_the_wrong_place(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(errors.DTypeError, match=words):
        kind(GRAPH, [2], **options)


def test_options_that_do_nothing_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'sharded' and options of planning cannot be used"):
        Loader("parts", [2], cache=Auto(transfer="scan"), ranks=Ranks(features="sharded"))
    with pytest.raises(errors.InvalidArgumentError, match="exchange is for features='sharded', got 'rounds'"):
        Ranks(exchange="rounds")


def test_signatures_show_every_option() -> None:
    own = inspect.signature(Loader).parameters
    options = {name: own[name] for name in own if name not in ("data", "num_neighbors", "input_nodes", "pyg_options")}
    shown = inspect.signature(LinkLoader).parameters
    for name, parameter in options.items():
        if name not in ("input_time", "history"):
            assert shown[name] == parameter, name
    assert {"neg_sampling", "edge_label"} <= shown.keys()
    assert not {"options", "history", "input_nodes", "input_time"} & shown.keys()
    typed = typing_of(LoaderOptions)
    ignored = typed.keys() & typing_of(PyGOptions).keys()
    assert {name: typed[name] for name in typed.keys() - ignored - {"transform"}} == {
        name: parameter.annotation for name, parameter in options.items() if name != "transform"
    }
    added = {name for name in shown if name not in ("data", "num_neighbors", "edge_label_index", "pyg_options")}
    assert added == typing_of(LinkOptions).keys() - ignored


def test_signatures_of_the_data_module() -> None:
    pytest.importorskip("lightning")
    from freshgo.lightning import DataModule

    shown = inspect.signature(DataModule).parameters.keys()
    own = {"data", "num_neighbors", "inputs", "loader", "per_stage"}
    assert shown - own - {"pyg_options"} == typing_of(ModuleOptions).keys() - typing_of(PyGOptions).keys()


def typing_of(options: Any) -> dict[str, str]:
    """The types of a TypedDict, as they are written."""
    return {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}


def test_every_option_of_pyg_is_taken() -> None:
    values = dict.fromkeys(typing_of(PyGOptions)) | {"directed": True}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keywords._warned.clear()
        Loader(GRAPH, [2], **values).close()
    said = " ".join(str(one.message) for one in caught)
    assert {name for name in values if f"ignores {name}:" in said} == values.keys() - {
        *("directed", "transform_sampler_output", "custom_cls", "batch_sampler", "collate_fn")
    }
    with pytest.raises(errors.InvalidArgumentError, match="custom_cls is only supported as"):
        Loader(GRAPH, [2], custom_cls=False)
