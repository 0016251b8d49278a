"""Loader(device=...): the same batches, with copies as late and memory as short as CUDA may have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import left
import pytest
import torch
from device_fakes import LateStreams, in_place_of_cuda, until
from torch import Tensor

from freshgo import Loader, errors
from freshgo._batch.structure import recall
from freshgo._device.packed import PACKED, Part, Unpacking
from freshgo.history import History

CPU = torch.device("cpu")


fake = in_place_of_cuda(autouse=False)


nothing_left = left.fixture()


def options(**more: Any) -> dict[str, Any]:
    return {"num_neighbors": [4, 3], "input_nodes": "train", "batch_size": 64, "shuffle": True, "seed": 3, **more}


def contents(batch: Any) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in batch}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        x.dtype == b[name].dtype and bool((x == b[name]).all()) and x.shape == b[name].shape
        if isinstance(x, Tensor)
        else x == b[name]
        for name, x in a.items()
    )


def test_the_usual_error_without_cuda(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((RuntimeError, AssertionError)) as usual:
        torch.zeros(1, device="cuda")
    monkeypatch.setattr("freshgo._loader.batch_makers.NativeLoader", None)  # nothing is opened before
    monkeypatch.setattr("freshgo.loader.open_source", None)
    for device in ("cuda", "cuda:1", torch.device("cuda", 0)):
        with pytest.raises(
            errors.CudaError, match=r"^device='cuda.*' cannot be used: .*; device=None leaves"
        ) as raised:
            Loader(store_path, **options(), device=device)
        assert isinstance(raised.value, RuntimeError)
        assert str(usual.value).partition("\n")[0] in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (
            {"device": "meta"},
            errors.InvalidArgumentError,
            r"device must be 'cpu', 'cuda' or 'cuda:<index>', got 'meta'",
        ),
        ({"device": torch.device("meta")}, errors.InvalidArgumentError, r"got 'meta'"),
        ({"device": "gpu"}, errors.InvalidArgumentError, r"got 'gpu'"),
        ({"device": "cuda:x"}, errors.InvalidArgumentError, r"got 'cuda:x'"),
        ({"device": 0}, errors.DTypeError, r"device must be a string such as 'cuda:0'.*got 0"),
        ({"device_cache": "1GiB"}, errors.InvalidArgumentError, r"device_cache needs a CUDA device.*device=None"),
        ({"device_cache": 5, "device": "cpu"}, errors.InvalidArgumentError, r"device_cache.*device='cpu'"),
        ({"device_cache": "big"}, errors.InvalidArgumentError, r"device_cache must be a number of bytes"),
        ({"device_cache": -1}, errors.InvalidArgumentError, r"device_cache must be at least 0 bytes"),
    ],
)
def test_wrong_arguments(store_path: Path, arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Loader(store_path, **options(), **arguments)


def test_on_the_cpu_nothing_is_added(store: Any) -> None:
    for device in (None, "cpu", CPU):
        with Loader(store, **options(), device=device) as loader:
            iterator: Any = iter(loader)
            assert next(iterator).x.device == CPU
            assert iterator._batches is loader._engine.native
            assert "device_cache_rows" not in loader.stats()
            del iterator


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("edge_index", ["tensor", "EdgeIndex"])
@pytest.mark.parametrize("pad", [False, True])
def test_the_same_batches(store: Any, prefetch: int, edge_index: str, pad: bool) -> None:
    given = options(transpose=True, edge_index=edge_index, prefetch=prefetch, pad=pad)
    with Loader(store, **given) as plain, Loader(store, **given, device="cuda", memory="64MiB") as moved:
        streams = LateStreams.last
        for _ in range(2):
            before = len(streams.copies)
            for want, got in zip(plain, moved, strict=True):
                assert same(contents(want), contents(got))
                for a, b in zip(want.blocks(), got.blocks(), strict=True):
                    assert a.ptr.equal(b.ptr)
                    assert a.transposed is not None
                    assert b.transposed is not None
                    assert all(x.equal(y) for x, y in zip(a.transposed, b.transposed, strict=True))
                check_use(streams, got)
                if edge_index == "EdgeIndex":
                    assert got.edge_index.get_csc()[0][0].equal(want.edge_index.get_csc()[0][0])
            assert len(streams.copies) > before
        assert (moved.stats()["padded"] > 0) == pad
        assert streams.waits_of_host == 0
        assert moved.stats()["batches"] == 2 * len(moved)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("return_edge_id", [False, True])
def test_a_batch_crosses_in_one_copy_beside_its_rows(return_edge_id: bool) -> None:
    """In four bytes for each node, edge and target, and one for each label; nothing for what the device computes."""
    generator = torch.Generator().manual_seed(0)
    data = {
        "num_nodes": 50_000,
        "edge_index": torch.randint(50_000, (2, 400_000), generator=generator),
        "x": torch.randn(50_000, 3, generator=generator),
        "y": torch.randint(-100, 100, (50_000,), generator=generator),
    }
    given = {"num_neighbors": [10, 10], "batch_size": 500, "transpose": True, "return_edge_id": return_edge_id}
    with Loader(data, **given, device="cuda") as moved, Loader(data, **given) as plain:
        streams = LateStreams.last
        for want, got in zip(plain, moved, strict=True):
            assert same(contents(want), contents(got))
        copies = [copy for copy in streams.copies if copy.dim() == 1]
        assert len(streams.copies) == 2 * len(moved), "the rows, and everything else"
        assert len(copies) == len(moved)
        for batch, copy in zip(plain, copies, strict=True):
            targets = sum(batch.num_sampled_nodes[:-1])
            numbers = batch.num_nodes + targets + batch.edge_index.size(1) * (1 + return_edge_id)
            assert copy.numel() < 4 * numbers + batch.num_nodes + 2 * batch.batch_size + 1000
        assert streams.waits_of_host == 0


@pytest.mark.usefixtures("fake")
def test_integers_of_any_size_come_whole() -> None:
    """A batch has its values, whatever the bytes that they take on their way, and 2-d tables of integers too."""
    generator = torch.Generator().manual_seed(0)
    data: dict[str, Any] = {"num_nodes": 400, "edge_index": torch.randint(400, (2, 3000), generator=generator)}
    for bits in (0, 7, 8, 15, 16, 31, 32, 62):
        data[f"up{bits}"] = torch.randint(2**bits, (400, 2), generator=generator)
        data[f"down{bits}"] = -1 - torch.randint(2**bits, (400,), generator=generator)
        data[f"up{bits}"][::7] = 2**bits - 1
        data[f"down{bits}"][::7] = -(2**bits)
    with Loader(data, [4, 4], batch_size=50, device="cuda") as moved, Loader(data, [4, 4], batch_size=50) as plain:
        for want, got in zip(plain, moved, strict=True):
            assert same(contents(want), contents(got))
        assert len(LateStreams.last.copies) == len(moved)


def test_what_a_loop_keeps_of_a_batch_does_not_keep_the_batch() -> None:
    packed = torch.arange(100, dtype=torch.int32).view(torch.uint8)
    parts = [
        Part("n_id", torch.int32, torch.int64, 0, [60]),
        Part("ptr", torch.int8, torch.int64, 60 * 4 + 64, [1]),
        Part("edge_index", torch.int16, torch.int64, 60 * 4, [0]),
    ]
    made = Unpacking({})({PACKED: packed}, parts)
    assert made["n_id"].equal(torch.arange(60))
    assert made["edge_index"].shape == (2, 0)
    assert all(t.untyped_storage().data_ptr() != packed.data_ptr() for t in made.values())


def test_batches_that_are_not_packed_are_grouped_by_source_too() -> None:
    """Those whose rows come from other ranks."""
    index = torch.tensor([[2, 0, 2, 1, 0], [0, 0, 1, 1, 2]])
    made = Unpacking({"e0/": "n1/"})({"e0/edge_index": index, "n1/n_id": torch.arange(4)}, [])
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "e0/source_ptr": [0, 2, 3, 5, 5],
        "e0/source_target": [0, 2, 1, 0, 1],
        "e0/source_edge": [1, 4, 3, 0, 2],
    }
    assert {tensor.dtype for tensor in made.values()} == {torch.int64, torch.int32}


def check_use(streams: LateStreams, batch: Any) -> None:
    """Every copy that a batch can reach is known to be used by the consumer's stream, and is complete."""
    copies = {tensor.data_ptr() for tensor in streams.device_tensors() if tensor.numel()}
    known = recall(batch.edge_index)
    assert known is not None
    assert known.transposed is not None
    tensors = [value for _, value in batch if isinstance(value, Tensor)]
    reached = {t.data_ptr() for t in [*tensors, known.ptr, *known.transposed] if t is not None and t.numel()}
    assert len(reached & copies) >= 8
    assert reached & copies <= streams.used


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("edge_index", ["tensor", "EdgeIndex"])
@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.filterwarnings("ignore:history.update")
def test_handing_over_reads_nothing_of_the_device(
    store: Any, edge_index: str, pruned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host would wait for what it reads."""
    given = options(
        edge_index=edge_index, transpose=True, history=History(memory="1MiB", keep="rows") if pruned else None
    )
    with Loader(store, **given, device="cuda") as loader:
        streams = LateStreams.last
        for name in ("__int__", "__index__", "__float__", "__bool__", "item", "tolist", "nonzero", "equal"):
            real = getattr(Tensor, name)

            def read(tensor: Tensor, *rest: Any, real: Any = real, name: str = name) -> Any:
                assert all(tensor.data_ptr() != other.data_ptr() for other in streams.device_tensors()), name
                return real(tensor, *rest)

            monkeypatch.setattr(Tensor, name, read)
        for batch in loader:
            assert len(batch.blocks()) == 2
        assert streams.waits_of_host == 0


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(("prefetch", "lag"), [(0, 1), (4, 0), (4, 1), (4, 2)])
def test_history_prunes_batches_on_their_way(store: Any, prefetch: int, lag: int) -> None:
    """Batches, levels and hits are those of the CPU. With a lag, a batch is sent before the update of the batch before
    it."""
    seen: dict[str, list[Any]] = {"cpu": [], "cuda": []}
    for device, found in seen.items():
        history = History(memory="1MiB", policy="gradient", keep="rows", lag=lag)
        with Loader(store, **options(transpose=True, prefetch=prefetch), device=device, history=history) as loader:
            for _ in range(3):
                for number, batch in enumerate(loader, 1):
                    found.append((contents(batch), levels(batch)))
                    if device == "cuda":
                        streams = LateStreams.last
                        assert all(t.data_ptr() in streams.used for t in on_device(batch) if t.numel())
                        if prefetch and lag and number < len(loader):
                            until(lambda streams=streams: streams.done < len(streams.queue))
                        else:
                            assert streams.done == len(streams.queue), "a batch was sent ahead"
                    train_by_hand(history, batch)
            assert sum(layer["hits"] for layer in history.stats()["layers"]) > 0
    assert len(seen["cpu"]) == len(seen["cuda"]) > 3
    for (batch, tables), (moved, moved_tables) in zip(seen["cpu"], seen["cuda"], strict=True):
        assert same(batch, moved)
        assert same(tables, moved_tables)


def levels(batch: Any) -> dict[str, Any]:
    known = recall(batch.edge_index)
    assert known is not None
    found = known.levels
    tables: dict[str, Any] = {"index": found.index, "loaded": found.loaded, "degree": found.degree}
    for name in ("nodes", "computed", "hit", "slot"):
        tables |= {f"{name} {level}": table for level, table in enumerate(getattr(found, name)) if table is not None}
    for block in (of["", "", ""] for of in found.blocks):
        tables |= {f"{name} {block.level}": getattr(block, name) for name in ("ptr", "edge_index", "e_id", "edge")}
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in tables.items()}


def on_device(batch: Any) -> list[Tensor]:
    """The tensors of the levels that were copied."""
    known = recall(batch.edge_index)
    assert known is not None
    found = known.levels
    made = [*found.nodes, *found.computed, *found.hit, *found.slot, found.degree]
    for block in (of["", "", ""] for of in found.blocks):
        made += [block.ptr, block.edge_index, block.edge, *block.transposed]
    return [tensor for tensor in made if tensor is not None]


def train_by_hand(history: History, batch: Any) -> None:
    first, second = batch.blocks()
    history(batch.x, first)
    h = torch.linspace(0, 1, first.num_dst * 4).view(-1, 4).requires_grad_()
    (history(h, second) ** 2).sum().backward()
    history.update()


@pytest.mark.usefixtures("fake")
def test_a_transform_sees_the_batch_where_it_is(store: Any) -> None:
    seen = []

    def transform(batch: Any) -> Any:
        assert LateStreams.last.done >= 1
        assert not LateStreams.last.inside
        seen.append(batch.x.clone())
        return batch.x.sum()

    with Loader(store, **options(), device="cuda", transform=transform) as loader:
        sums = list(loader)
    assert len(sums) == len(seen) == len(loader._engine.at.whole) * len(sums)
    with Loader(store, **options()) as plain:
        assert [batch.x.sum() for batch in plain] == sums


@pytest.mark.usefixtures("fake")
def test_masks_and_graphs_in_memory(graph: dict[str, Any]) -> None:
    given = options(input_nodes=torch.from_numpy(graph["train_mask"]))
    with Loader(graph, **given) as plain, Loader(graph, **given, device="cuda") as moved:
        for want, got in zip(plain, moved, strict=True):
            assert same(contents(want), contents(got))


@pytest.mark.usefixtures("fake")
def test_a_state_counts_what_was_yielded(store: Any) -> None:
    with Loader(store, **options(), device="cuda") as loader:
        want = [contents(batch) for batch in loader]
    with Loader(store, **options(), device="cuda") as loader:
        for yielded, _ in enumerate(loader, 1):
            assert loader.state_dict()["batches"] == yielded
            if yielded == 5:
                state = loader.state_dict()
                break
    for device in ("cuda", "cpu"):
        with Loader(store, **options(), device=device) as loader:
            loader.load_state_dict(state)
            rest = [contents(batch) for batch in loader]
            assert len(rest) == len(want) - 5
            assert all(same(a, b) for a, b in zip(want[5:], rest, strict=True))


@pytest.mark.usefixtures("fake")
def test_iterators_dropped_in_the_middle(store: Any) -> None:
    with Loader(store, **options(), device="cuda") as loader, Loader(store, **options()) as plain:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for batch in loader:
                kept = batch
                break
            plain.set_epoch(epoch)
            for batch in plain:
                assert same(contents(batch), contents(kept))
                break
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with pytest.raises(errors.ClosedError):
            next(old)
        assert len(list(loader.trace(0))) == len(loader)


@pytest.mark.usefixtures("fake")
def test_closing_waits_for_copies(store: Any) -> None:
    loader = Loader(store, **options(), device="cuda")
    streams = LateStreams.last
    iterator = iter(loader)
    batch = next(iterator)
    want = contents(batch)
    until(lambda: streams.done < len(streams.queue))  # the next batch is on its way
    loader.close()
    assert streams.done == len(streams.queue) - 1, "what is unpacked reads memory of the device alone"
    assert same(contents(batch), want)
    loader.close()
    with pytest.raises(errors.ClosedError):
        next(iterator)


@pytest.mark.usefixtures("fake")
def test_memory_has_room_for_the_batches_on_their_way(store: Any) -> None:
    peaks = []
    for device in ("cpu", "cuda"):
        with pytest.raises(errors.BudgetError) as small:
            Loader(store, **options(), device=device, memory="300kB")
        with Loader(store, **options(), device=device, memory=small.value.minimum) as loader:
            assert len(list(loader)) == len(loader)
            assert loader.stats()["memory_peak"] <= small.value.minimum
        peaks.append(small.value.minimum)
    assert peaks[1] > peaks[0]
