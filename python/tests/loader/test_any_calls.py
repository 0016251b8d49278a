"""Any calls in any order, with right and wrong arguments: documented errors alone, no hang, and nothing left open.

``make hammer MINUTES=`` makes more of them.
"""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from flat_options import grouped
from graphs import UNNAMED, hetero_graph, random_graph
from seeds import seed as seed_of

import freshgo
from freshgo import History, LinkLoader, Loader, Store, errors, ops
from freshgo._native.process import counters

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")
stateful = pytest.importorskip("hypothesis.stateful")

RUNS = int(os.environ.get("FRESHGO_TEST_HAMMER_RUNS", "12"))
STEPS = 30
SECONDS = 60
"""What a single call may take on a machine with much else to do. One takes milliseconds."""

made: dict[str, int] = {}
"""How many calls of each kind there were, and how many of them raised."""


@contextmanager
def watched(kind: str) -> Iterator[None]:
    """Let a call raise what is documented, and end it where it hangs."""

    def hangs(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"{kind} takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    made[kind] = made.get(kind, 0) + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except errors.InternalError:
        raise
    except errors.FreshgoError as error:
        made["raised"] = made.get("raised", 0) + 1
        assert str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def some(*values: Any) -> Any:
    return st.sampled_from(values)


WRONG: tuple[Any, ...] = (-1, 2**63, -(2**70), 1.5, float("nan"), "", "many", b"x", object(), [], {}, (None,))
"""What no option means, or hardly any: each is tried for each."""

OPTIONS: dict[str, Any] = {
    "batch_size": some(1, 7, 100, 10_000),
    "shuffle": st.booleans(),
    "drop_last": st.booleans(),
    "replace": st.booleans(),
    "disjoint": st.booleans(),
    "seed": st.integers(-3, 2**64),
    "rank": some(None, 0, 1),
    "world_size": some(None, 1, 2, 1000),
    "num_workers": some(0, 1, 3),
    "prefetch": some(0, 1, 4, 50),
    "memory": some(None, "64MiB", "2MiB", 1, "1GiB"),
    "cache": some("auto", "belady", "degree", "lru", "match", None, np.ones(3000), torch.arange(3000)),
    "feature_cache": some(None, "0B", "1MiB", 0),
    "neighbor_cache": some(None, 0, "100KiB"),
    "reorder": some(False, True, 2),
    "trace_memory": some(None, "1MiB", 0),
    "scratch_size": some(None, 0, "1MiB"),
    "io": some("auto", "pread", "buffered"),
    "checksums": st.booleans(),
    "transpose": st.booleans(),
    "return_edge_id": st.booleans(),
    "weight_attr": some(None, "edge_weight", "x"),
    "neighbor_sampler": some(None, "labor"),
    "subgraph_type": some("directional", "bidirectional", "induced"),
    "input_weight": some(None, np.ones(3000), [1.0]),
    "directed": st.booleans(),
    "persistent_workers": st.booleans(),
    "no_such_option": st.none(),
}
FANOUTS = some(
    [2],
    [2],
    [2],
    [3, 2],
    [3, 2],
    [3, 2],
    [4, 4],
    [4, 4],
    [-1],
    [0, 3],
    [5, 5, 5],
    [],
    [-2],
    [2**40],
    None,
    "3",
    [1.5],
    {UNNAMED: [2]},
    [[2]],
)
INPUTS = some(
    None,
    None,
    None,
    ("paper", None),
    ("paper", None),
    [0, 1, 2],
    range(100),
    "train",
    "none",
    [],
    [5, 5, 5],
    [-1],
    [3000],
    [2**63],
    torch.zeros(3000, dtype=bool),
    np.arange(50),
    np.array([0.5]),
    ("paper", None),
    ("paper", [1, 2]),
    ("nobody", [1]),
)
LINKS = some(
    None,
    torch.tensor([[0, 1], [2, 3]]),
    np.zeros((2, 0), np.int64),
    torch.tensor([[0, 1]]),
    [[0], [9999]],
    "edges",
    ("paper", "cites", "paper"),
    (("paper", "cites", "paper"), torch.tensor([[1], [2]])),
    None,
    None,
)
IDS = st.lists(st.integers(-2, 3005), max_size=6)


@st.composite
def keywords(draw: Callable[..., Any]) -> dict[str, Any]:
    """Some options, of which now and then one has a value that it cannot have."""
    names = draw(st.lists(some(*OPTIONS), max_size=3, unique=True))
    given = {name: draw(OPTIONS[name]) for name in names}
    if names and draw(st.integers(0, 3)) == 0:
        given[draw(some(*names))] = draw(some(*WRONG))
    return given


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    plain, hetero = random_graph(), hetero_graph()
    directory = tmp_path_factory.mktemp("any")
    for name, graph in (("plain", plain), ("hetero", hetero)):
        freshgo.convert(graph, directory / name, memory="64MiB", progress=False).close()
    (directory / "file").write_text("no store")
    (directory / "empty").mkdir()
    memory = {name: of for name, of in plain.items() if name != "splits"}
    paths = [directory / name for name in ("plain", "hetero", "plain", "hetero", "file", "empty", "nothing")]
    return {"paths": paths, "data": [memory, {**memory, "x": memory["x"][:5]}, {}, None, 3, [1, 2]]}


def machine(graphs: dict[str, Any]) -> type[Any]:
    rule, invariant = stateful.rule, stateful.invariant

    class Calls(stateful.RuleBasedStateMachine):  # type: ignore[misc, name-defined]
        stores = stateful.Bundle("stores")
        loaders = stateful.Bundle("loaders")
        histories = stateful.Bundle("histories")
        states = stateful.Bundle("states")

        def __init__(self) -> None:
            super().__init__()
            self.epochs: dict[int, Any] = {}
            self.opened: list[Any] = []

        @rule(target=stores, path=some(*graphs["paths"]))
        def open_store(self, path: Path) -> Any:
            with watched("Store.open"):
                self.opened.append(Store.open(path))
                return self.opened[-1]
            return stateful.multiple()

        @rule(store=stores, name=some("x", "y", "half", "nothing", "", 3, None), of=some(None, "paper", "nobody", 5))
        def read(self, store: Store, name: Any, of: Any) -> None:
            with watched("Store.read"):
                rows = {store.num_nodes, store.num_edges, *store.num_nodes_dict.values()}
                assert store.read(name, of).size(0) in rows
            with watched("Store.split"):
                store.split(name if name != "x" else "test", of)
            with watched("Store[]"):
                store[name]

        @rule(store=stores)
        def look(self, store: Store) -> None:
            with watched("Store.verify"):
                store.verify()
            with watched("Store.inspect"):
                store.inspect()
                repr(store)

        @rule(store=stores)
        def close_store(self, store: Store) -> None:
            with watched("Store.close"):
                store.close()

        @rule(
            target=histories,
            p=some(0.9, 0.9, 0.0, 1.0, -1, "many"),
            t=some(200, 200, 0, 1, -1, b"x"),
            lag=some(1, 1, 0, 3, 1.5),
        )
        def make_history(self, p: Any, t: Any, lag: Any) -> Any:
            with watched("History"):
                return History(p, t, lag=lag, keep="rows")
            return stateful.multiple()

        @rule(
            target=loaders,
            data=st.one_of(stores, stores, some(*graphs["data"], *graphs["paths"])),
            fanouts=FANOUTS,
            inputs=INPUTS,
            given=keywords(),
        )
        def make_loader(self, data: Any, fanouts: Any, inputs: Any, given: dict[str, Any]) -> Any:
            with watched("Loader"):
                self.opened.append(Loader(data, fanouts, inputs, **grouped(**given)))
                return self.opened[-1]
            return stateful.multiple()

        @rule(target=loaders, store=stores, history=histories, fanouts=FANOUTS, given=keywords())
        def make_pruned(self, store: Store, history: History, fanouts: Any, given: dict[str, Any]) -> Any:
            with watched("Loader with history"):
                self.opened.append(Loader(store, fanouts, None, history=history, **grouped(**given)))
                return self.opened[-1]
            return stateful.multiple()

        @rule(
            target=loaders,
            data=st.one_of(stores, some(*graphs["data"])),
            fanouts=FANOUTS,
            links=LINKS,
            negatives=some(None, None, "binary", "triplet", ("binary", 2.0), "all", 1.5),
            given=keywords(),
        )
        def make_links(self, data: Any, fanouts: Any, links: Any, negatives: Any, given: dict[str, Any]) -> Any:
            with watched("LinkLoader"):
                self.opened.append(LinkLoader(data, fanouts, links, neg_sampling=negatives, **grouped(**given)))
                return self.opened[-1]
            return stateful.multiple()

        @rule(loader=loaders)
        def begin(self, loader: Loader) -> None:
            with watched("iter"):
                self.epochs[id(loader)] = iter(loader)

        @rule(loader=loaders, count=some(1, 1, 3, 20))
        def take(self, loader: Loader, count: int) -> None:
            for _ in range(count):
                with watched("next"):
                    batch = next(self.epochs.get(id(loader), iter(())), None)
                    if batch is None:
                        return

        @rule(loader=loaders, ids=st.one_of(IDS, some(None, "x", 1.5, [[1]], torch.tensor([[1], [2]]))))
        def sample(self, loader: Loader, ids: Any) -> None:
            with watched("Loader.sample"):
                loader.sample(ids)

        @rule(loader=loaders, epoch=some(0, 1, 10**6, *WRONG))
        def set_epoch(self, loader: Loader, epoch: Any) -> None:
            with watched("Loader.set_epoch"):
                loader.set_epoch(epoch)

        @rule(loader=loaders)
        def ask(self, loader: Loader) -> None:
            with watched("len"):
                assert len(loader) >= 0
            with watched("Loader.stats"):
                loader.stats()
                repr(loader)
            with watched("Loader.plan"):
                loader.plan()

        @rule(target=states, of=st.one_of(loaders, histories))
        def save(self, of: Any) -> Any:
            with watched("state_dict"):
                return of.state_dict()
            return stateful.multiple()

        @rule(
            of=st.one_of(loaders, histories),
            state=st.one_of(states, some({}, {"epoch": 1}, *WRONG)),
            wrong=some(*WRONG),
        )
        def load(self, of: Any, state: Any, wrong: Any) -> None:
            with watched("load_state_dict"):
                of.load_state_dict(state)
            if isinstance(state, dict) and state:
                for name in state:
                    with watched("load_state_dict, changed"):
                        of.load_state_dict({**state, name: wrong})

        @rule(history=histories)
        def history_step(self, history: History) -> None:
            for call in (history.update, history.stats, history.eval, history.train, history.detach):
                with watched("History." + call.__name__):
                    call()

        @rule(loader=loaders)
        def close_loader(self, loader: Loader) -> None:
            with watched("Loader.close"):
                loader.close()

        @rule(
            rows=some(0, 1, 5, 40),
            columns=some(0, 1, 3, 17),
            ends=some(0, 1, 4),
            edges=some(0, 1, 9),
            dtype=some(torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool),
            low=some(0, 0, 0, -1),
            high=some(0, 0, 0, 1),
            reduce=some("sum", "mean", "max", "min", "median", None),
            many=some(4, 4, 0, *WRONG),
            broken=some(None, None, "ptr falls", "ptr short", "ptr ends elsewhere", "floats", "no tensor"),
        )
        def operate(
            self,
            rows: int,
            columns: int,
            ends: int,
            edges: int,
            dtype: Any,
            low: int,
            high: int,
            reduce: Any,
            many: Any,
            broken: Any,
        ) -> None:
            edges = edges if rows and ends else 0
            index: Any = torch.randint(low, max(rows + high, low + 1), (edges,))
            ptr: Any = torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(0, edges + 1, (ends,)).sort()[0]])
            ptr[-1] = edges if ends else 0
            if broken == "ptr falls":
                ptr = ptr.flip(0)
            elif broken == "ptr short":
                ptr = ptr[:0]
            elif broken == "ptr ends elsewhere":
                ptr[-1] += 3
            elif broken == "floats":
                index = index.float()
            elif broken == "no tensor":
                index = None
            x = torch.ones(rows, columns).to(dtype)
            with watched("ops.aggregate"):
                assert ops.aggregate(x, index, ptr, reduce=reduce).shape == (ends, columns)
            with watched("ops.gcn"):
                ops.gcn(x, index, ptr)
            with watched("ops.attention"):
                alpha = torch.ones(rows, 1).to(dtype)
                ops.attention(x, alpha, None, index, ptr)
            with watched("ops.transpose"):
                ops.transpose(index, ptr, rows if many == 4 else many)
            with watched("ops.group"):
                ops.group(torch.stack([index, index]) if index is not None else None, many)

        @invariant()
        def alive(self) -> None:
            assert counters()["loaders"] >= 0

        def teardown(self) -> None:
            for one in reversed(self.opened):
                with watched("close at the end"):
                    one.close()

    return Calls


@pytest.mark.explore
def test_any_calls(graphs: dict[str, Any]) -> None:
    gc.collect()
    before = counters()
    made.clear()
    calls = machine(graphs)
    drawn = hypothesis.seed(seed_of(23))(calls)
    settings = hypothesis.settings(
        max_examples=RUNS,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    stateful.run_state_machine_as_test(drawn, settings=settings)
    gc.collect()
    after = counters()
    assert {k: n for k, n in after.items() if k != "pooled_bytes"} == {
        k: n for k, n in before.items() if k != "pooled_bytes"
    }
    raised = made.pop("raised", 0)
    print(f"{sum(made.values())} calls, {raised} of them raised: {made}")
    assert raised > RUNS
    assert sum(made.values()) > 10 * RUNS
