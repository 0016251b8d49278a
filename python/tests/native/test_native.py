"""The private layer over the C API: handles, errors, tensors and their memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import capi_header
import left
import native_inputs
import pytest
import torch
from seeds import seed as seed_of

from freshgo import errors
from freshgo._args.size import least_size
from freshgo._native import abi, dlpack, header
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import raw_options
from freshgo._native.process import counters
from freshgo._native.store import Store as NativeStore

Options = native_inputs.options

NODES, EDGES = 400, 3000

DTYPES = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
          torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]  # fmt: skip


nothing_left = left.fixture()


@pytest.fixture(scope="module")
def edges() -> torch.Tensor:
    return torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(seed_of(1)))


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random values of any dtype."""
    bits = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(seed_of(2)))
    return bits.bool() if dtype == torch.bool else bits.abs().to(dtype) if not dtype.is_signed else bits.to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality that works for every dtype."""
    return a.dtype == b.dtype and a.shape == b.shape and bool((a.contiguous().view(torch.uint8)
                                                               == b.contiguous().view(torch.uint8)).all())  # fmt: skip


def rows(tensor: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """``tensor[ids]`` for every dtype."""
    flat = tensor.contiguous().view(torch.uint8).reshape(len(tensor), -1)[ids]
    return flat.view(tensor.dtype).reshape(len(ids), *tensor.shape[1:])


@pytest.fixture(scope="module")
def native_path(edges: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "g.freshgo"
    native_inputs.convert(
        path,
        num_nodes=NODES,
        edge_index=edges,
        node_tensors={str(dtype).removeprefix("torch."): values(dtype, NODES, 3) for dtype in DTYPES},
        edge_tensors={"weight": values(torch.float32, EDGES)},
        splits={"train": torch.arange(0, NODES, 3), "mask": values(torch.bool, NODES)},
        memory=64 << 20,
    )
    return path


@pytest.fixture(params=["store", "graph"])
def source(request: pytest.FixtureRequest, native_path: Path, edges: torch.Tensor) -> Iterator[Any]:
    if request.param == "store":
        opened: Any = NativeStore(native_path)
    else:
        tensors = {str(dtype).removeprefix("torch."): values(dtype, NODES, 3) for dtype in DTYPES}
        opened = NativeGraph(native_inputs.parts(NODES, edges, tensors, {"weight": values(torch.float32, EDGES)}))
    yield opened
    opened.close()


def epoch(loader: NativeLoader, number: int = 0) -> list[RawBatch]:
    loader.start(number, 0)
    return list(iter(loader.next, None))


def test_describe_and_read(native_path: Path) -> None:
    store = NativeStore(native_path)
    info = store.describe()
    assert (info["num_nodes"], info["num_edges"]) == (NODES, EDGES)
    assert info["splits"] == {"train": len(range(0, NODES, 3)), "mask": int(values(torch.bool, NODES).sum())}
    for dtype in DTYPES:
        assert same(store.read(str(dtype).removeprefix("torch."), kind="node"), values(dtype, NODES, 3))
    assert same(store.read("weight", kind="edge"), values(torch.float32, EDGES))
    assert same(store.read("train", kind="split"), torch.arange(0, NODES, 3))
    assert same(store.read("mask", kind="split"), values(torch.bool, NODES).nonzero().flatten())
    for kind in ("split", "node", "edge"):
        with pytest.raises(errors.InvalidArgumentError, match="nothing"):
            store.read("nothing", kind=kind)
    with pytest.raises(errors.InvalidArgumentError, match="kind"):
        store.read("x", kind="nodes")  # type: ignore[arg-type]
    seen: list[tuple[str, int, int]] = []
    store.verify(lambda *now: seen.append(now))
    assert seen
    assert seen[-1][1] == seen[-1][2] > 0
    store.close()


@pytest.mark.parametrize("versioned", [False, True])
def test_batches_of_every_dtype(source: Any, versioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if versioned and not dlpack.use_versioned():
        pytest.skip("this PyTorch knows no versioned capsules")
    monkeypatch.setattr(dlpack, "use_versioned", lambda: versioned)
    loader = NativeLoader(source, Options(fanouts=[3, 2], batch_size=50, shuffle=True))
    assert loader.num_batches == 8
    for i, batch in enumerate(epoch(loader)):
        tensors = batch.tensors
        assert (batch.index, batch.num_seeds) == (i, 50)
        assert list(tensors["edge_index"].shape) == [2, len(tensors["e_id"])]
        for dtype in DTYPES:
            got = tensors[str(dtype).removeprefix("torch.")]
            assert same(got, rows(values(dtype, NODES, 3), tensors["n_id"]))
        assert same(tensors["weight"], values(torch.float32, EDGES)[tensors["e_id"]])
        for tensor in tensors.values():
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 64 == 0
        tensors["float32"].fill_(7)  # writable: what torch computes in place stays in this batch
        tensors["n_id"].add_(1)
    assert loader.next() is None
    assert loader.next() is None
    loader.close()


def test_trace_and_resume(source: Any) -> None:
    loader = NativeLoader(source, Options(fanouts=[2], batch_size=64, seed=9, shuffle=True))
    whole = [batch.tensors["n_id"] for batch in epoch(loader, 5)]
    loader.start(5, 0, "trace")
    traced = list(iter(loader.next, None))
    assert [set(batch.tensors) for batch in traced] == [{"n_id", "input_id"}] * len(whole)
    assert all(same(batch.tensors["n_id"], ids) for batch, ids in zip(traced, whole, strict=True))
    loader.start(5, 4)
    rest = list(iter(loader.next, None))
    assert [batch.index for batch in rest] == list(range(4, loader.num_batches))
    assert same(rest[0].tensors["n_id"], whole[4])
    loader.close()


def test_seeds_are_our_own_copy(source: Any) -> None:
    seeds = torch.arange(20)
    loader = NativeLoader(source, Options(fanouts=[1], batch_size=20, seeds=seeds))
    seeds.fill_(10**9)
    assert same(epoch(loader)[0].tensors["n_id"][:20], torch.arange(20))
    loader.close()
    for wrong in (seeds.int(), seeds.reshape(4, 5), seeds.float()):
        with pytest.raises(errors.InvalidArgumentError, match="one-dimensional int64"):
            NativeLoader(source, Options(fanouts=[1], seeds=wrong))
    with pytest.raises(errors.InvalidArgumentError, match="1000000000"):
        NativeLoader(source, Options(fanouts=[1], seeds=seeds))


def test_no_seeds_is_not_every_node(source: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="input_nodes is empty"):
        NativeLoader(source, Options(fanouts=[1], seeds=torch.empty(0, dtype=torch.int64)))


def test_many_batches_leak_nothing(source: Any) -> None:
    """The counters of ten thousand batches, and of what was kept meanwhile."""
    loader = NativeLoader(source, Options(fanouts=[1], batch_size=4, num_workers=1, prefetch=2))
    kept, count, high = [], 0, 0
    while count < 10_000:
        loader.start(count, 0)
        while (batch := loader.next()) is not None:
            count += 1
            if count % 1000 == 0:
                kept.append((batch.tensors["n_id"], batch.tensors["n_id"].clone()))
        del batch
        high = max(high, counters()["buffers"])
    tensors = len(epoch(loader)[0].tensors)
    assert high <= len(kept) + 4 * tensors, "a batch in Python, prefetched ones, and what was kept"
    gc.collect()
    loader.close()
    assert counters()["buffers"] == len(kept)
    assert all(same(*pair) for pair in kept), "tensors outlive their loader, and nobody writes into them"


def test_closing_with_an_epoch_running(source: Any) -> None:
    loader = NativeLoader(source, Options(fanouts=[3], batch_size=10))
    loader.start(0, 0)
    first = loader.next()
    assert first is not None
    copy = first.tensors["n_id"].clone()
    loader.close()
    loader.close()
    assert loader.closed
    for action in (loader.next, loader.stop, loader.stats, lambda: loader.start(0, 0)):
        with pytest.raises(errors.ClosedError, match="loader is closed"):
            action()
    assert same(first.tensors["n_id"], copy)


def test_a_source_may_be_closed_first(native_path: Path) -> None:
    store = NativeStore(native_path)
    loader = NativeLoader(store, Options(fanouts=[2], batch_size=100))
    store.close()
    with pytest.raises(errors.ClosedError, match="store is closed"):
        store.describe()
    with pytest.raises(ValueError, match="closed"):
        NativeLoader(store, Options(fanouts=[2]))
    assert len(epoch(loader)) == 4
    loader.close()


def test_dropping_everything_frees_everything(native_path: Path, edges: torch.Tensor) -> None:
    """No close at all: the garbage collector does it, whatever is still running."""
    loader = NativeLoader(NativeStore(native_path), Options(fanouts=[2]))
    loader.start(0, 0)
    loader.next()
    graph = NativeGraph(native_inputs.parts(NODES, edges, {}, {}))
    circle: list[Any] = [loader, graph]
    circle.append(circle)


def test_tensors_of_a_graph_stay_alive(edges: torch.Tensor) -> None:
    x = values(torch.float32, NODES, 3)
    graph = NativeGraph(native_inputs.parts(NODES, edges.clone(), {"x": x.clone()}, {}))
    loader = NativeLoader(graph, Options(fanouts=[2], batch_size=100))
    graph.close()
    del graph
    gc.collect()
    junk = [torch.full((NODES, 3), 9.0) for _ in range(50)]  # would take the place of a freed x
    for batch in epoch(loader):
        assert same(batch.tensors["x"], x[batch.tensors["n_id"]])
    loader.close()
    del junk


def test_two_consumers_share_an_epoch(source: Any) -> None:
    loader = NativeLoader(source, Options(fanouts=[2], batch_size=3))
    loader.start(0, 0)
    got: list[int] = []

    def consume() -> None:
        while (batch := loader.next()) is not None:
            got.append(batch.index)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(loader.num_batches))
    loader.close()


def test_wrong_handles(native_path: Path) -> None:
    """A closed handle, one of another kind, NULL, and one that never was: errors, not crashes."""
    store = NativeStore(native_path)
    loader = NativeLoader(store, Options(fanouts=[1]))
    pointer = store._handle()
    with pytest.raises(errors.InvalidArgumentError, match="expected a loader, got a store"):
        abi.call("fg_loader_stop", pointer)
    with pytest.raises(errors.InvalidArgumentError, match="expected a store, got a loader"):
        abi.call("fg_store_close", loader._handle())
    with pytest.raises(errors.InvalidArgumentError, match="NULL"):
        abi.call("fg_job_cancel", None)
    with pytest.raises(errors.InvalidArgumentError, match="a store or a graph"):
        abi.call("fg_loader_open", None, None, raw_options(Options(fanouts=[1])), ctypes.c_void_p())
    unknown = ctypes.create_string_buffer(8)
    with pytest.raises(errors.ClosedError):
        abi.call("fg_store_close", ctypes.addressof(unknown))
    loader.close()
    store.close()
    for _ in range(3):
        again = NativeStore(native_path)
        with pytest.raises(errors.ClosedError, match="store is closed"):
            abi.call("fg_store_close", pointer)  # closed long ago; must not hit the new one
        again.describe()
        again.close()


def test_struct_size_is_checked(native_path: Path) -> None:
    store = NativeStore(native_path)
    options = raw_options(Options(fanouts=[1]))
    options.num_held = -1  # which cannot be, where it is read
    job = ctypes.c_void_p()
    for size in (0, 7, ctypes.sizeof(header.LoaderOptions) + 1, 2**32 - 1):
        options.struct_size = size
        with pytest.raises(errors.InvalidArgumentError, match="struct_size"):
            abi.call("fg_loader_open", store._handle(), None, options, job)
    options.struct_size = ctypes.sizeof(header.LoaderOptions)
    with pytest.raises(errors.InvalidArgumentError, match="-1 held at"):
        abi.call("fg_loader_open", store._handle(), None, options, job)
    options.struct_size = header.LoaderOptions.held.offset  # a caller that does not know of what follows
    abi.call("fg_loader_open", store._handle(), None, options, job)
    state = header.Progress()
    assert abi.call("fg_job_wait", job, 60_000, state) == header.OK
    abi.call("fg_job_close", job)
    abi.call("fg_loader_close", state.result)
    for struct, function in ((header.GraphInput(), "fg_graph_open"), (header.ConvertInput(), "fg_convert_start")):
        with pytest.raises(errors.InvalidArgumentError, match="struct_size"):
            abi.call(function, struct, *([b"x"] if "convert" in function else []), job)
    store.close()


def test_capacity_is_checked(source: Any) -> None:
    loader = NativeLoader(source, Options(fanouts=[1], batch_size=100))
    loader.start(0, 0)
    slots = (header.Tensor * 2)()
    with pytest.raises(errors.InvalidArgumentError, match="capacity is 2"):
        abi.call("fg_loader_next", loader._handle(), 1000, header.Batch(tensors=slots, capacity=2))
    batch = loader.next()
    assert batch is not None
    assert batch.index == 0, "nothing was lost"
    loader.close()


def test_jobs_are_cancelled_closed_and_polled(native_path: Path, edges: torch.Tensor) -> None:
    store = NativeStore(native_path)
    job, state = ctypes.c_void_p(), header.Progress()
    abi.call("fg_store_verify", store._handle(), job)
    abi.call("fg_job_cancel", job)
    with contextlib.suppress(errors.CancelledError):  # it may have been quicker
        assert abi.call("fg_job_wait", job, -1, state) == header.OK
    abi.call("fg_job_close", job)
    with pytest.raises(errors.ClosedError, match="job is closed"):
        abi.call("fg_job_wait", job, 0, state)
    # closed without anybody having taken the result
    abi.call("fg_store_read", store._handle(), 1, 0, b"float32", 0, job)
    abi.call("fg_job_close", job)
    store.close()


def test_an_exception_in_progress_stops_the_job(edges: torch.Tensor, tmp_path: Path) -> None:
    def progress(stage: str, done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        native_inputs.convert(
            tmp_path / "a",
            num_nodes=NODES,
            edge_index=edges,
            node_tensors={},
            edge_tensors={},
            splits={},
            memory=1 << 26,
            progress=progress,
        )
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "a"])  # as a whole, or not at all


def test_unused_capsules_free_their_tensor(native_path: Path) -> None:
    store = NativeStore(native_path)
    for versioned in (False, True):
        for consume in (False, True):
            job, state = ctypes.c_void_p(), header.Progress()
            abi.call("fg_store_read", store._handle(), 1, 0, b"int64", int(versioned), job)
            assert abi.call("fg_job_wait", job, -1, state) == header.OK
            abi.call("fg_job_close", job)
            tensors = (header.Tensor * 1)((None, state.result))
            (capsule,) = abi.new_capsules(tensors, 1, versioned)
            assert tensors[0].managed is None
            assert ("dltensor_versioned" if versioned else "dltensor") in repr(capsule)
            assert counters()["buffers"] == 1
            if consume and (not versioned or dlpack.use_versioned()):
                assert same(torch.utils.dlpack.from_dlpack(capsule), values(torch.int64, NODES, 3))
            del capsule
            assert counters()["buffers"] == 0
    store.close()


def test_interrupted_handover_leaks_nothing(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right after the library handed a batch, or the result of a job, over."""
    loader = NativeLoader(source, Options(fanouts=[1], batch_size=100))
    loader.start(0, 0)
    call = abi.call

    def interrupted(name: str, *args: Any) -> int:
        code = call(name, *args)
        if name in ("fg_loader_next", "fg_job_wait") and code == header.OK:
            raise KeyboardInterrupt
        return code

    actions: list[Callable[[], object]] = [loader.next, lambda: NativeLoader(source, Options(fanouts=[1]))]
    if isinstance(source, NativeStore):
        actions.append(lambda: source.read("int8", kind="node"))
    before = counters()["loaders"]
    with monkeypatch.context() as patch:
        patch.setattr(abi, "call", interrupted)
        for action in actions:
            with pytest.raises(KeyboardInterrupt):
                action()
    assert counters()["loaders"] == before
    loader.close()


def test_budget_error_names_what_works(source: Any) -> None:
    options: dict[str, Any] = {"fanouts": [2], "batch_size": 10, "prefetch": 1}
    with pytest.raises(errors.BudgetError) as caught:
        NativeLoader(source, Options(**options, memory=1000))
    assert isinstance(caught.value, MemoryError)
    assert caught.value.minimum > 1000
    assert least_size(caught.value.minimum) in str(caught.value)
    NativeLoader(source, Options(**options, memory=caught.value.minimum)).close()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.minimum) == (str(caught.value), caught.value.minimum)


def test_errors_carry_errno_and_filename(tmp_path: Path, edges: torch.Tensor) -> None:
    with pytest.raises(errors.StoreNotFoundError) as caught:
        NativeStore(tmp_path / "größe")
    assert caught.value.errno == errno.ENOENT
    assert "größe" in caught.value.filename
    assert isinstance(caught.value, FileNotFoundError)
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    with pytest.raises(errors.StoreNotFoundError) as caught:
        NativeStore(odd)
    assert caught.value.filename.startswith(odd)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(errors.FreshgoError):
        NativeStore(tmp_path / "file")

    convert = {"num_nodes": NODES, "edge_index": edges, "node_tensors": {}, "edge_tensors": {}, "splits": {}}
    native_inputs.convert(tmp_path / "a", **convert, memory=1 << 26)  # type: ignore[arg-type]
    with pytest.raises(errors.StoreExistsError) as exists:
        native_inputs.convert(tmp_path / "a", **convert, memory=1 << 26)  # type: ignore[arg-type]
    assert isinstance(exists.value, FileExistsError)
    assert exists.value.errno == errno.EEXIST
    native_inputs.convert(tmp_path / "a", **convert, memory=1 << 26, overwrite=True)  # type: ignore[arg-type]
    with pytest.raises(errors.BudgetError) as budget:
        native_inputs.convert(tmp_path / "b", **convert, memory=1000)  # type: ignore[arg-type]
    native_inputs.convert(tmp_path / "b", **convert, memory=budget.value.minimum)  # type: ignore[arg-type]


def test_every_code_has_an_exception() -> None:
    codes = {}
    for line in capi_header.text().splitlines():
        words = line.split("/*")[0].split()
        if len(words) == 3 and words[0].startswith("FG_") and words[1] == "=":
            codes[words[0]] = int(words[2].strip(","))
    assert set(abi._EXCEPTIONS) == {code for code in codes.values() if code >= 10}
    assert [codes["FG_OK"], codes["FG_TIMEOUT"], codes["FG_END"]] == [header.OK, header.TIMEOUT, header.END]
    public = {getattr(errors, name) for name in errors.__all__}
    of_processes = {errors.ExecutorError, errors.RankError, errors.ServerError}
    python_only = {errors.FreshgoError, errors.ForkError, errors.LibraryError, *of_processes}
    assert set(abi._EXCEPTIONS.values()) == public - python_only
    for code, kind in abi._EXCEPTIONS.items():
        raised = abi._exception(header.Error(code=code, message="größe".encode(), minimum=5))
        assert type(raised) is kind
        assert "größe" in str(raised)


@pytest.mark.parametrize("change", ["abi", "size_error", "size_batch", "size_loader_options"])
def test_a_library_of_another_version_is_refused(change: str) -> None:
    def version(info: Any, error: Any) -> int:
        abi.call("fg_version", info)
        setattr(info._obj, change, 99)
        return 0

    with pytest.raises(errors.LibraryError, match="mixed"):
        abi._check_version(Path("x.so"), version)
    assert issubclass(errors.LibraryError, ImportError)


def test_a_library_that_does_not_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "libfreshgo.so"
    monkeypatch.setattr(abi, "library_path", lambda: broken)
    monkeypatch.setattr(abi, "_functions", {})
    with pytest.raises(errors.LibraryError, match=r"is missing. Likely causes"):
        abi.call("fg_counters", header.CountersInfo())
    broken.write_bytes(b"not a library")
    with pytest.raises(errors.LibraryError, match=r"cannot be loaded: .*Likely causes"):
        abi.call("fg_counters", header.CountersInfo())


def test_pooled_memory_is_reused_and_given_back(source: Any) -> None:
    loader = NativeLoader(source, Options(fanouts=[2], batch_size=100, prefetch=1))
    addresses: set[int] = set()
    uses = 0
    for number in range(20):
        for batch in epoch(loader, number):
            addresses |= {tensor.data_ptr() for tensor in batch.tensors.values()}
            uses += len(batch.tensors)
        del batch
    assert len(addresses) < uses / 2
    assert counters()["pooled_bytes"] > 0
    loader.close()
    assert counters()["pooled_bytes"] == 0


def test_tensors_are_dropped_on_other_threads(source: Any) -> None:
    """Tensors are dropped on other threads than they came from, while batches go on."""
    loader = NativeLoader(source, Options(fanouts=[2], batch_size=5))
    queue: list[RawBatch] = []
    done = threading.Event()

    def drop() -> None:
        while not done.is_set() or queue:
            if queue:
                queue.pop()

    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(3):
        loader.start(number, 0)
        while (batch := loader.next()) is not None:
            queue.append(batch)
    done.set()
    for thread in threads:
        thread.join()
    loader.close()
