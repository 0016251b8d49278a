"""What type checkers, and so editors, know of options: they refuse each line with a ``type: ignore``, and no other.

This is not run. `make lint` lets mypy check it and ``test_typing.py`` pyright; both refuse a comment without a mistake.
"""

from pathlib import Path
from typing import Any

import duckdb
import networkx
import numpy as np
import polars
import pyarrow
import pyarrow.dataset
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import Planetoid
from torch_geometric.sampler import NegativeSampling
from torch_geometric.sampler.base import SubgraphType
from typing_extensions import Unpack

import freshgo
from freshgo import (
    Auto,
    Belady,
    Disk,
    History,
    Hotness,
    Labor,
    LinkLoader,
    Loader,
    MemoryBudget,
    Online,
    Ranks,
    Store,
    Table,
    convert,
    convert_tables,
    hotness,
    propagate,
    pyg,
    relayout,
    simulate,
)
from freshgo.lightning import DataModule
from freshgo.options import LinkOptions, LoaderOptions


def data(store: Store, graph: Data, typed: HeteroData) -> None:
    """Every kind of data that a loader takes, and some that it does not."""
    Loader(store, [2])
    Loader("graph.freshgo", [2])
    Loader(Path("graph.freshgo"), [2])
    Loader(graph, [2])
    Loader(typed, {("user", "rates", "item"): [2]}, "user")
    Loader({"edge_index": torch.zeros(2, 0, dtype=torch.long)}, [2])
    Loader(torch.zeros(2, 5, dtype=torch.long), [2])
    Loader(np.zeros((2, 5), np.int64), [2])
    Loader((np.zeros(5), np.zeros(4)), [2])
    Loader(pyg.stores(store), [2])
    Loader(scipy.sparse.coo_array((5, 5)), [2])
    Loader(networkx.Graph(), [2])
    Loader(Planetoid("data", "Cora"), [2])
    Loader(42, [2])  # type: ignore[arg-type]
    Loader(None, [2])  # type: ignore[arg-type]
    Loader(range(3), [2])  # type: ignore[arg-type]
    LinkLoader(42, [2])  # type: ignore[arg-type]
    DataModule(42, [2], {"train": None})  # type: ignore[arg-type]
    hotness(42)  # type: ignore[arg-type]


def loaders(store: Store, budget: MemoryBudget, names: list[str]) -> None:
    """Right and wrong options, and their values."""
    Loader(store, [2], batch_size=10, temporal_strategy="last", time_attr="t", memory=budget, history=History())
    Loader(store, [2], neighbor_sampler=Labor(), feature_dtype="stored", edge_index="EdgeIndex", cache="sieve")
    Loader(store, [2], subgraph_type=SubgraphType.induced, cache=torch.ones(3), disk=Disk(io="io_uring"))
    Loader(store, [2], cache=Belady(8, transfer="scan+forward"), ranks=Ranks(uneven="join", share="host"))
    Loader(store, [2], persistent_workers=True, worker_init_fn=None, filter_per_worker=None, directed=True)
    Loader(store, [2], bach_size=10)  # type: ignore[call-arg]
    Loader(store, [2], batch_size="10")  # type: ignore[arg-type]
    Loader(store, [2], temporal_strategy="lats")  # type: ignore[arg-type]
    Loader(store, [2], io="io_uring")  # type: ignore[call-arg]
    Loader(store, [2], disk=Disk(io="iouring"))  # type: ignore[arg-type]
    Loader(store, [2], disk=Disk(checksum=True))  # type: ignore[call-arg]
    Loader(store, [2], disk="io_uring")  # type: ignore[arg-type]
    Loader(store, [2], ranks=Ranks(uneven="joined"))  # type: ignore[arg-type]
    Loader(store, [2], ranks=Ranks(share="hosts"))  # type: ignore[arg-type]
    Loader(store, [2], ranks=Ranks(features="shard", exchange="auto"))  # type: ignore[arg-type]
    Loader(store, [2], cache="beladi")  # type: ignore[arg-type]
    Loader(store, [2], cache=Auto(transfer="scann"))  # type: ignore[arg-type]
    Loader(store, [2], cache=Online("lruu"))  # type: ignore[arg-type]
    Loader(store, [2], cache=Hotness("degrees"))  # type: ignore[arg-type]
    Loader(store, [2], neighbor_sampler="labour")  # type: ignore[arg-type]
    Loader(store, [2], sampler="labor")  # type: ignore[arg-type]
    Loader(store, [2], feature_dtype="float16")  # type: ignore[arg-type]
    Loader(store, [2], edge_index="edge_index")  # type: ignore[arg-type]
    Loader(store, [2], subgraph_type="inducd")  # type: ignore[arg-type]
    Loader(store, [2], persistent_worker=True)  # type: ignore[call-arg]
    Loader(store, [2], collate_fn=list)  # type: ignore[arg-type]
    Loader(store, [2], memory=names)  # type: ignore[arg-type]


def links(store: Store) -> None:
    """The same for links."""
    LinkLoader(store, [2], neg_sampling="binary", batch_size=10, exclude_seed_edges="reverse", seed=3)
    LinkLoader(store, [2], neg_sampling=NegativeSampling("triplet", 2.0), temporal_strategy="last")
    LinkLoader(store, [2], neg_sampling=("binary", 2.0), disk=Disk(checksums=True), num_workers=2, timeout=0)
    LinkLoader(store, [2], neg_sampling={"mode": "binary"}, exclude_seed_edges=("user", "rates", "item"))
    LinkLoader(store, [2], neg_sampling="binray")  # type: ignore[arg-type]
    LinkLoader(store, [2], exclude_seed_edges="revers")  # type: ignore[arg-type]
    LinkLoader(store, [2], bach_size=10)  # type: ignore[call-arg]
    LinkLoader(store, [2], temporal_strategy="lats")  # type: ignore[arg-type]
    LinkLoader(store, [2], history=History())  # type: ignore[call-arg]
    LinkLoader(store, [2], input_nodes="train")  # type: ignore[call-arg]
    LinkLoader(store, [2], memory=1.5)  # type: ignore[arg-type]


def modules(store: Store) -> None:
    """The same for Lightning."""
    DataModule(store, [2], {"train": "train"}, batch_size=10, memory="1GiB", ranks=Ranks(uneven="drop"))
    DataModule(store, [2], {"val": None}, loader=LinkLoader, neg_sampling="triplet", per_stage={"val": {"seed": 3}})
    DataModule(store, [2], {"train": "train"}, bach_size=10)  # type: ignore[call-arg]
    DataModule(store, [2], {"train": "train"}, neg_sampling="binray")  # type: ignore[arg-type]
    DataModule(store, [2], {"val": None}, per_stage={"val": {"bach_size": 10}})  # type: ignore[typeddict-unknown-key]


def names(store: Store) -> None:
    """Names of the package, and of its modules, that there are and that there are not."""
    freshgo.Loader(store, [2], disk=freshgo.options.Disk())
    print(freshgo.policies.NAMES, freshgo.samplers.NAMED, freshgo.nn.accelerate, freshgo.ops.aggregate)
    print(freshgo.Lodaer)  # type: ignore[attr-defined]
    freshgo.convrt(store, "to")  # type: ignore[attr-defined]


def wrapped(store: Store, **options: Unpack[LoaderOptions]) -> Loader[Any]:
    """A function of a user that passes options on."""
    return Loader(store, [15, 10], **options)


def wrapped_links(store: Store, **options: Unpack[LinkOptions]) -> LinkLoader[Any]:
    """The same for links."""
    return LinkLoader(store, [15, 10], **options)


def others(store: Store) -> None:
    """Choices of other functions."""
    wrapped(store, batch_size=10, cache=Belady())
    wrapped_links(store, neg_sampling="binary", shuffle=True)
    pyg.stores(store, cache="degree")
    relayout(store, "to", order="hot", hotness="presc")
    propagate(store, reduce="gcn")
    History(policy="gas", keep="aggregates")
    simulate([torch.arange(2)], policy="lru", capacity=3)
    wrapped(store, bach_size=10)  # type: ignore[call-arg]
    wrapped_links(store, neg_sampling="binray")  # type: ignore[arg-type]
    pyg.stores(store, cash="degree")  # type: ignore[call-arg]
    convert({}, "to", source="mtx", relayout="hot")
    convert(scipy.sparse.coo_array((5, 5)), "to")
    convert(Planetoid("data", "Cora"), Path("to"))
    convert(networkx.Graph(), "to")
    convert(42, "to")  # type: ignore[arg-type]
    convert(store, "to")  # type: ignore[arg-type]
    convert({}, "to", source="csr", relayout={"order": "hot"})
    convert({}, "to", source="mtxx")  # type: ignore[arg-type]
    convert({}, "to", relayout="cold")  # type: ignore[arg-type]
    convert_tables(Table("n.csv", id="n"), Table("e.csv", src="s", dst="d"), "to", relayout="community")
    convert_tables(None, Table("e.csv", src="s", dst="d"), "to", relayout="cold")  # type: ignore[arg-type]
    Table("e.csv", src="s", dst="d", nulls={"w": 0.5, "n": "none"}, decimal=",")
    Table([Path("a.csv"), "b.csv"], src="s", dst="d")
    Table({"s": [1], "d": torch.zeros(1)}, src="s", dst="d")
    Table(polars.DataFrame(), id="n")
    Table(polars.LazyFrame(), id="n")
    Table(pyarrow.table({}), id="n")
    Table(pyarrow.dataset.dataset("rows"), id="n")
    Table(duckdb.table("rows"), id="n")
    Table(42, id="n")  # type: ignore[arg-type]
    Table([1, 2], id="n")  # type: ignore[list-item]
    Table(None, id="n")  # type: ignore[arg-type]
    Table("e.csv", src="s", dst="d", nulls="eror")  # type: ignore[arg-type]
    Table("e.csv", src="s", dst="d", decimal=";")  # type: ignore[arg-type]
    relayout(store, "to", order="cold")  # type: ignore[arg-type]
    relayout(store, "to", hotness="degrees")  # type: ignore[arg-type]
    propagate(store, reduce="avg")  # type: ignore[arg-type]
    History(policy="performant", keep="rows")  # type: ignore[arg-type]
    History(keep="row")  # type: ignore[arg-type]
    simulate([torch.arange(2)], policy="lruu", capacity=3)  # type: ignore[arg-type]
    convert_tables({}, {}, "to", missing="ignore")  # type: ignore[arg-type]
