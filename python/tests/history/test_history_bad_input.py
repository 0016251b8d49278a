"""What a history refuses: typed, early, with the way out; and that it is as good as before afterwards."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
from history_models import Compose, compose, loss_of, model_of, pyg, small_graph, train
from history_oracle import FakeLoader
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader, errors
from freshgo._history.saved_state import checksum
from freshgo.errors import FreshgoError
from freshgo.history import History

GRAPH = small_graph()


pytestmark = pytest.mark.filterwarnings("ignore:history.update:UserWarning")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"p_grad": -0.1}, errors.InvalidArgumentError, r"p_grad must be within \[0, 1\], got -0.1"),
        ({"p_grad": 1.5}, errors.InvalidArgumentError, r"p_grad.*1.5"),
        ({"p_grad": math.nan}, errors.InvalidArgumentError, r"p_grad.*nan"),
        ({"p_grad": True}, errors.DTypeError, r"p_grad must be a number, got True"),
        ({"p_grad": "0.9"}, errors.DTypeError, r"p_grad.*'0.9'"),
        ({"p_grad": b"1"}, errors.DTypeError, r"p_grad.*b'1'"),
        ({"t_stale": -1}, errors.InvalidArgumentError, r"t_stale must be at least 0.*epochs.*-1"),
        ({"t_stale": -0.5}, errors.InvalidArgumentError, r"t_stale.*-0.5"),
        ({"t_stale": math.nan}, errors.InvalidArgumentError, r"t_stale.*nan"),
        ({"t_stale": "1 epoch"}, errors.DTypeError, r"t_stale.*'1 epoch'"),
        ({"t_stale": False}, errors.DTypeError, r"t_stale.*False"),
        ({"start": -1}, errors.InvalidArgumentError, r"start.*-1"),
        ({"start": None}, errors.DTypeError, r"start.*None"),
        ({"policy": "perfomance"}, errors.InvalidArgumentError, r"'gradient'.*did you mean 'performance'"),
        ({"policy": None}, errors.InvalidArgumentError, r"policy"),
        ({"keep": "rows", "policy": "gas", "p_grad": 0.5}, errors.InvalidArgumentError, r"policy='gas'.*p_grad=0.5"),
        ({"policy": "gas", "t_stale": 10}, errors.InvalidArgumentError, r"policy='gas'.*t_stale=10"),
        ({"memory": 0}, errors.InvalidArgumentError, r"memory must be at least 1 byte"),
        ({"memory": "12 parsecs"}, errors.InvalidArgumentError, r"memory.*'12 parsecs'"),
        ({"memory": 1.5}, errors.DTypeError, r"memory.*1.5"),
        ({"lag": -1}, errors.InvalidArgumentError, r"lag must be at least 0, got -1"),
        ({"lag": 0.5}, errors.DTypeError, r"lag must be an int"),
        ({"lag": True}, errors.DTypeError, r"lag must be an int"),
        ({"device": "gpu"}, errors.InvalidArgumentError, r"device.*'gpu'"),
        ({"device": "meta"}, errors.InvalidArgumentError, r"device.*'meta'"),
        ({"sample_error": -0.1}, errors.InvalidArgumentError, r"sample_error"),
        ({"sample_error": 2}, errors.InvalidArgumentError, r"sample_error.*2"),
        ({"sample_error": "0.1"}, errors.DTypeError, r"sample_error"),
    ],
)
def test_options(options: dict[str, Any], error: type[FreshgoError], match: str) -> None:
    with pytest.raises(error, match=match):
        History(**options)


def test_options_that_are_meant() -> None:
    s = History(
        1, 0.25, start=2.0, memory="1MiB", lag=0, device="cpu", sample_error=0.01, keep="rows"
    )._entries.settings
    assert (s.p_grad, s.t_stale.count, s.t_stale.epochs) == (1.0, 0.25, True)
    assert (s.start.count, s.start.epochs, s.memory, s.lag, s.probe_every) == (2.0, True, 1 << 20, 0, 100)
    assert s.device is None
    gas = History(policy="gas", keep="rows")._entries.settings
    assert (gas.policy, gas.p_grad, gas.t_stale.count) == ("all", 1.0, math.inf)
    assert not History(t_stale=math.inf, keep="rows")._entries.settings.t_stale.epochs
    assert repr(History(t_stale=0.5, memory="1MiB", keep="rows")) == (
        "History(p_grad=0.9, t_stale=0.5 epochs, policy='performance', memory=1.0 MiB)"
    )


def test_a_positional_policy_is_refused() -> None:
    with pytest.raises(TypeError):
        History(0.9, 200, "gradient", keep="rows")  # type: ignore[misc]


class Bare(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


class Whole(nn.Module):
    """A layer without types that cannot be bipartite."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.lin = nn.Linear(a, b)

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        x = x[0] if isinstance(x, tuple) else x
        return self.lin(x)


class OwnGCN(pyg.GCNConv):  # type: ignore[misc, name-defined]
    pass


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: (Bare(), None), r"Bare is not a model of PyG's BasicGNN family.*layers="),
        (
            lambda: (nn.ModuleDict({"convs": nn.ModuleList([pyg.SAGEConv(2, 2), pyg.GATConv(2, 2)])}), None),
            r"as attach\(model, layers=\[model\.convs\[0\], model\.convs\[1\]\]\), or",
        ),
        (lambda: (3, None), r"model must be a torch.nn.Module, got int"),
        (lambda: (Bare(), []), r"at least one"),
        (lambda: (Bare(), [3]), r"layer 1 must be a torch.nn.Module, got int"),
        (lambda: (Bare(), [nn.Linear(2, 2)]), r"Linear must be called with \(rows, edge_index"),
        (lambda: (Bare(), [pyg.SAGEConv(2, 2)] * 2), r"lists a layer twice"),
        (lambda: (Bare(), [pyg.SAGEConv(2, 2), pyg.ChebConv(2, 2, 2)]), r"layer 2: ChebConv takes Tensor"),
        (lambda: (Bare(), [pyg.TAGConv(2, 2)]), r"TAGConv.*SAGEConv, GATConv"),
        (lambda: (Bare(), [pyg.GCN2Conv(2, 0.1)]), r"GCN2Conv takes"),
        (lambda: (Bare(), [OwnGCN(2, 2)]), r"OwnGCN is derived from GCNConv"),
        (lambda: (Bare(), [pyg.SAGEConv(2, 2, flow="target_to_source")]), r"flow='target_to_source'"),
        (lambda: (pyg.GraphSAGE(12, 8, 3, 5, jk="cat"), None), r"jk='cat'.*jk=None or jk='last'"),
        (lambda: (pyg.GraphSAGE(12, 8, 3, 5, jk="lstm"), None), r"jk='lstm'"),
    ],
)
def test_models_that_cannot_work(make: Any, match: str) -> None:
    history = History()
    with pytest.raises(errors.DTypeError if "must be a torch" in match else errors.InvalidArgumentError, match=match):
        history.attach(*make())
    history.attach(model_of("GCN"))  # nothing was attached
    with pytest.raises(errors.InvalidArgumentError, match=r"detach\(\)"):
        history.attach(model_of("GCN"))


def started(model: Any, **options: Any) -> tuple[History, FakeLoader]:
    history = History(policy="gradient", keep="rows", **options)
    if isinstance(model, Compose):
        history.attach(model, layers=model.convs)
    elif model is not None:
        history.attach(model)
    return history, FakeLoader(Loader(GRAPH, [4, 3, 3], batch_size=40), history)


def step(model: Any, history: History, batch: Any, **kwargs: Any) -> None:
    loss_of(model(batch.x, batch.edge_index, **kwargs), batch).backward()
    history.update()


def test_update_without_backward() -> None:
    model = model_of("GraphSAGE")
    history, loader = started(model)
    batches = iter(loader)
    batch = next(batches)
    out = model(batch.x, batch.edge_index)
    with pytest.raises(errors.InvalidArgumentError, match=r"before a backward pass.*after loss.backward\(\)"):
        history.update()
    del out
    batch = next(batches)
    with torch.no_grad():
        model(batch.x, batch.edge_index)
    with pytest.raises(errors.InvalidArgumentError, match="backward"):
        history.update()
    step(model, history, next(batches))
    assert loader.native.skipped == [0, 1]
    assert loader.native.updates == [2]


def test_a_model_that_never_asked() -> None:
    history, loader = started(None)
    batch = next(iter(loader))
    model = model_of("GraphSAGE")
    loss_of(model(batch.x, batch.edge_index), batch).backward()
    with pytest.raises(errors.InvalidArgumentError, match=r"did not ask for its rows of layer 1, 2.*attach\(model\)"):
        history.update()


def test_batches_that_are_not_the_newest() -> None:
    model = model_of("GraphSAGE")
    history, loader = started(model)
    batches = iter(loader)
    first = next(batches)
    step(model, history, first)
    with pytest.raises(errors.InvalidArgumentError, match=r"update\(\) has been called for batch 0"):
        model(first.x, first.edge_index)
    second = next(batches)
    with pytest.raises(errors.InvalidArgumentError, match="batch 0 is not the newest"):
        model(first.x, first.edge_index)
    step(model, history, second)


def test_pruned_batches_in_evaluation() -> None:
    model = model_of("GraphSAGE")
    history, loader = started(model)
    batches = iter(loader)
    batch = next(batches)
    model.eval()
    with pytest.raises(errors.InvalidArgumentError, match="in evaluation"):
        model(batch.x, batch.edge_index)
    model.train()
    history.eval()
    with pytest.raises(errors.InvalidArgumentError, match="in evaluation"):
        history(batch.x, batch.blocks()[0])
    history.train()
    step(model, history, batch)


def test_layers_and_hops_must_agree() -> None:
    torch.manual_seed(seed_of(0))
    model = pyg.GraphSAGE(12, 8, 2, 5)
    history, loader = started(model)
    batch = next(iter(loader))
    with pytest.raises(errors.InvalidArgumentError, match="2 message-passing layers, the loader samples 3 hops"):
        model(batch.x, batch.edge_index)
    assert history._steps.current is not None


def test_arguments_of_layers() -> None:
    gcn = model_of("GCN")
    history, loader = started(gcn)
    batches = iter(loader)
    batch = next(batches)
    with pytest.raises(errors.InvalidArgumentError, match=r"weights of edges.*normalize=False"):
        gcn(batch.x, batch.edge_index, edge_weight=batch.edge_weight)
    assert all(conv.normalize for conv in gcn.convs)  # type: ignore[union-attr]
    with pytest.raises(errors.InvalidArgumentError, match="batch= assigns nodes to graphs"):
        gcn(batch.x, batch.edge_index, batch=torch.zeros(len(batch.x), dtype=torch.int64))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"a row for each node of the batch, expected \d+ rows, got \d+"
    ):
        gcn(batch.x[1:], batch.edge_index)
    step(gcn, history, batch)

    nodes = compose(pyg.SAGEConv)()
    history, loader = started(nodes)
    batch = next(iter(loader))
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"layer 1: .* is \[3\], .* must have an entry for each of the batch's \d+ edges",
    ):
        nodes(batch.x, batch.edge_index, torch.zeros(3))


def test_a_layer_that_keeps_all_rows() -> None:
    model = Compose([Whole(12, 8), Whole(8, 8), Whole(8, 5)])
    _, loader = started(model)
    batch = next(iter(loader))
    with pytest.raises(errors.InvalidArgumentError, match=r"Whole returned \d+ rows, expected the \d+"):
        model(batch.x, batch.edge_index)


def test_edges_that_were_changed() -> None:
    model = model_of("GraphSAGE")
    history, loader = started(model, p_grad=1.0)
    batches = iter(loader)
    step(model, history, next(batches))
    batch = next(batches)
    with pytest.raises(errors.InvalidArgumentError, match="edges cannot be changed"):
        model(batch.x, batch.edge_index.flip(1))
    step(model, history, batch)


def test_rows_between_layers() -> None:
    history, loader = started(None)
    batch = next(iter(loader))
    first, second, _ = batch.blocks()
    history(batch.x, first)
    for wrong in (torch.zeros(first.num_dst + 1, 4), torch.zeros(0, 4)):
        with pytest.raises(errors.InvalidArgumentError, match=r"layer 1 computes \d+ rows of this batch"):
            history(wrong, second)
    with pytest.raises(errors.InvalidArgumentError, match=r"shape \[rows, columns\]"):
        history(torch.zeros(first.num_dst, 2, 2), second)
    with pytest.raises(errors.DTypeError, match="floating point"):
        history(torch.zeros(first.num_dst, 4, dtype=torch.int64), second)


def by_hand(history: History, batch: Any, widths: tuple[int, int], dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    first, second, third = batch.blocks()
    h = history(batch.x, first)
    h = torch.ones(first.num_dst, widths[0], dtype=dtypes[0], requires_grad=True)
    total = history(h, second).float().sum()
    h = torch.ones(second.num_dst, widths[1], dtype=dtypes[1], requires_grad=True)
    (total + history(h, third).float().sum()).backward()
    history.update()


def test_dtype_and_width_stay() -> None:
    half, full = torch.bfloat16, torch.float32
    history, loader = started(None)
    batches = iter(loader)
    with pytest.raises(errors.DTypeError, match=r"one dtype.*bfloat16.*float32"):
        by_hand(history, next(batches), (4, 4), (half, full))
    by_hand(history, next(batches), (4, 3), (full, full))
    with pytest.raises(errors.DTypeError, match=r"computes torch.bfloat16.*holds torch.float32.*new History"):
        by_hand(history, next(batches), (4, 3), (half, half))
    with pytest.raises(errors.InvalidArgumentError, match=r"rows of 6 columns.*have 4.*new History"):
        by_hand(history, next(batches), (4, 6), (full, full))
    by_hand(history, next(batches), (4, 3), (full, full))
    assert loader.native.updates == [1, 4]


def test_a_row_that_is_written_to_afterwards() -> None:
    history, loader = started(None)
    batch = next(iter(loader))
    first, second, third = batch.blocks()
    history(batch.x, first)
    h = torch.ones(first.num_dst, 4, requires_grad=True)
    history(h, second).sum().backward()
    with torch.no_grad():
        h.add_(1)
    history(torch.ones(second.num_dst, 4), third)
    with pytest.raises(errors.InvalidArgumentError, match="layer 1 changed after"):
        history.update()


def test_another_device() -> None:
    history, loader = started(None)
    batch = next(iter(loader))
    first, second, _ = batch.blocks()
    history(batch.x, first)
    with pytest.raises(
        errors.InvalidArgumentError, match=r"computes on meta.*buffer is on cpu.*History\(device='meta'\)"
    ):
        history(torch.ones(first.num_dst, 4, device="meta"), second)


def test_two_loaders() -> None:
    history, loader = started(None)
    with pytest.raises(errors.InvalidArgumentError, match="used by another loader"):
        FakeLoader(loader.plain, history)
    loader.native.closed = True
    other = FakeLoader(loader.plain, history)  # once the first is closed
    by_hand(history, next(iter(other)), (2, 2), (torch.float32, torch.float32))


def test_states_that_do_not_belong() -> None:
    model = model_of("GraphSAGE")
    history, loader = started(model, memory="1MiB")
    train(model, loader, history)
    state = history.state_dict()
    for wrong in (None, {}, {"version": 3}, {"version": 1}, {"version": 2}, [1]):
        with pytest.raises(errors.InvalidArgumentError, match=r"what state_dict\(\)"):
            history.load_state_dict(wrong)  # type: ignore[arg-type]
    other, _loader = started(None, memory="1MiB", t_stale=3)
    with pytest.raises(errors.InvalidArgumentError, match="t_stale was '200 iterations', is '3 iterations'"):
        other.load_state_dict(state)
    other, _loader = started(None, memory="1MiB")
    for key, value in (
        ("entries", torch.zeros(3)),
        ("entries", b"123"),
        ("rows", torch.zeros(4)),
        ("dtype", "float33"),
        ("dtype", "nn"),
        ("dtype", "int32"),
        ("width", -1),
        ("width", "8"),
        ("saving", None),
        ("saving", {"span": 0, "points": [], "bytes_saved": 0}),
        ("saving", {"span": 1, "points": [[1, 2]], "bytes_saved": 0}),
        ("error", torch.zeros(2)),
    ):
        damaged = {**copy.copy(state), key: value}
        damaged["checksum"] = checksum(damaged)
        for victim in (other, history, History(policy="gradient", memory="1MiB", keep="rows")):
            with pytest.raises(errors.FormatError, match="history state"):
                victim.load_state_dict(damaged)
    with pytest.raises(errors.InvalidArgumentError, match=r"2097152 bytes of rows, the buffer holds 1048576"):
        larger = {**state, "rows": torch.zeros(2 << 20, dtype=torch.uint8)}
        history.load_state_dict({**larger, "checksum": checksum(larger)})
    history.load_state_dict(state)
    train(model, loader, history)


def test_no_loader() -> None:
    history = History()
    assert history.stats()["saving"] == []
    file = io.BytesIO()
    torch.save(history.state_dict(), file)
    file.seek(0)
    History().load_state_dict(torch.load(file, weights_only=True))
    with pytest.raises(errors.DTypeError, match="state_dict"):
        pickle.dumps(history)
    with pytest.raises(errors.DTypeError, match="state_dict"):
        copy.deepcopy(history)
    assert history.plot() is not None


@pytest.mark.parametrize("keep", ["rows", "aggregates"])
@pytest.mark.parametrize("restored", [False, True])
def test_another_width_at_a_level_is_refused(keep: str, restored: bool) -> None:
    """A narrower model would read the first columns of what a wider one has left."""

    def model(hidden: int) -> nn.Module:
        return pyg.models.GraphSAGE(hidden if keep == "aggregates" else 12, hidden, 3, 5)

    def graph(columns: int) -> dict[str, Any]:
        return {**GRAPH, "x": GRAPH["x"][:, :columns] if keep == "aggregates" else GRAPH["x"]}

    history = History(1.0, 30, keep=keep, memory="1MiB", policy="performance")
    first = model(12)
    history.attach(first)
    with Loader(graph(12), [3, 3, 3], batch_size=40, history=history) as loader:
        train(first, loader, history)
        history.detach()
        if restored:
            state = history.state_dict()
            history = History(1.0, 30, keep=keep, memory="1MiB", policy="performance")
            loader = Loader(graph(12), [3, 3, 3], batch_size=40, history=history)
            history.load_state_dict(state)
        second = model(8)
        history.attach(second)
        with pytest.raises(errors.InvalidArgumentError, match=r"layer 1 .* columns, what the history holds"):
            for batch in loader:
                out = second(batch.x[:, : 8 if keep == "aggregates" else 12], batch.edge_index)
                loss_of(out, batch).backward()
                history.update()
        loader.close()
