"""What a newcomer tries ends in a typed error that says what came and how to go on, or works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import freshgo
from freshgo import History, LinkLoader, Loader, Store, convert, errors, infer, ops, relayout, simulate

EDGES = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
GRAPH = {"edge_index": EDGES, "x": torch.arange(10.0).view(5, 2), "feat": torch.ones(5, 1)}


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Loader, "batchsize", "did you mean 'batch_size'?"),
        (Loader, "Shuffle", "did you mean 'shuffle'?"),
        (Loader, "persistent_worker", "did you mean 'persistent_workers'?"),
        (LinkLoader, "negsampling", "did you mean 'neg_sampling'?"),
        (LinkLoader, "bach_size", "did you mean 'batch_size'?"),
    ],
)
def test_a_misspelt_option(kind: type[Loader], name: str, hint: str) -> None:
    said = f"{kind.__name__}() got an unexpected keyword argument {name!r}; {hint}"
    with pytest.raises(errors.DTypeError, match=f"^{re.escape(said)}$"):
        kind(GRAPH, [2], **{name: 4})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: freshgo.Belady(superbtch=3), "Belady() got an unexpected keyword argument 'superbtch'; did you mean"),
        (lambda: freshgo.Disk(checksum=True), "Disk() got an unexpected keyword argument 'checksum'; did you mean"),
        (
            lambda: History(p_grd=1, keep="rows"),
            "History() got an unexpected keyword argument 'p_grd'; did you mean 'p_grad'?",
        ),
        (lambda: convert(GRAPH, "x", memry=1), "convert() got an unexpected keyword argument 'memry'; did you mean"),
        (lambda: freshgo.Table("x", lable="y"), "Table() got an unexpected keyword argument 'lable'; did you mean"),
        (lambda: ops.group(EDGES, nodes=3), "group() got an unexpected keyword argument 'nodes'"),
        (lambda: ops.group(EDGES), "group() missing 1 required positional argument: 'num_targets'"),
    ],
)
def test_arguments_that_a_function_does_not_take(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(errors.DTypeError, match=re.escape(said)) as raised:
        call()
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_a_type_error_of_the_users_own_code_stays() -> None:
    def transform(batch: Any) -> Any:
        return batch + None

    with pytest.raises(TypeError) as raised:
        next(iter(Loader(GRAPH, [2], transform=transform)))
    assert not isinstance(raised.value, errors.FreshgoError) and raised.traceback[-1].name == "transform"


def test_a_name_that_the_package_does_not_have() -> None:
    code = "import freshgo; freshgo.Loder"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert "has no attribute 'Loder'. Did you mean: 'Loader'?" in done.stderr


def test_an_option_like_no_other() -> None:
    with pytest.raises(errors.DTypeError, match=r"^Loader\(\) got an unexpected keyword argument 'zzz'$"):
        Loader(GRAPH, [2], zzz=1)


@pytest.mark.parametrize(("name", "instead"), [("input_nodes", "edge_label_index"), ("input_time", "edge_label_time")])
def test_nodes_for_a_loader_of_links(name: str, instead: str) -> None:
    with pytest.raises(errors.DTypeError, match=f"links in place of nodes: give {instead}, got {name}"):
        LinkLoader(GRAPH, [2], **{name: [1]})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"edge_index": EDGES}, r"'EdgeIndex', got a Tensor of shape \[2, 5\]$"),
        (
            {"weight_attr": EDGES},
            r"name of an edge-level tensor, or a dict of names by edge type, got a Tensor of shape \[2, 5\]$",
        ),
        ({"time_attr": EDGES.numpy()}, r"node-level tensor, got a ndarray of shape \[2, 5\]$"),
        ({"input_nodes": {1, 2}}, r"split's name or None, got \{1, 2\}: it holds objects, not numbers$"),
        ({"input_nodes": ["a", "b"]}, r"split's name or None, got \['a', 'b'\]: it holds text, not numbers$"),
        ({"input_nodes": {"paper": [1]}}, r"input_nodes must be .* in a homogeneous graph, got a dict"),
        ({"batch_size": "4" * 200}, r"batch_size must be an int, got '4{116}\.\.\.$"),
    ],
)
def test_what_came_is_shown_in_a_line(options: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.FreshgoError, match=match):
        Loader(GRAPH, [2], **options)


def test_a_loader_is_no_data_set() -> None:
    with Loader(GRAPH, [2]) as loader:
        wrapped = torch.utils.data.DataLoader(loader)
        for get in (lambda: loader[0], lambda: next(iter(wrapped))):
            with pytest.raises(errors.DTypeError, match=r"replaces torch.utils.data.DataLoader"):
                get()
        assert len(list(loader)) == 5


def test_loops_at_the_same_time() -> None:
    with Loader(GRAPH, [2]) as loader:
        outer = iter(loader)
        next(outer)
        assert len(list(loader)) == 5
        with pytest.raises(errors.ClosedError, match="need a loader each"):
            next(outer)


@pytest.mark.parametrize(
    "use",
    [
        lambda path: Store(None),  # type: ignore[arg-type]
        lambda path: Store.open(3),  # type: ignore[arg-type]
        lambda path: convert(GRAPH, 3, progress=False),  # type: ignore[arg-type]
        lambda path: relayout(GRAPH, path, progress=False),  # type: ignore[arg-type]
    ],
)
def test_no_path(tmp_path: Path, use: Callable[[Path], Any]) -> None:
    with pytest.raises(errors.DTypeError, match=r"^the path of a store must be a string or an os\.PathLike, got "):
        use(tmp_path / "g.freshgo")


def test_a_path_that_c_would_end(tmp_path: Path) -> None:
    convert(GRAPH, tmp_path / "g.freshgo", progress=False).close()
    with pytest.raises(errors.InvalidArgumentError, match="zero character"):
        Store(f"{tmp_path}/g.freshgo\0and more")
    with pytest.raises(errors.InvalidArgumentError, match="must not hold a zero character"):
        infer(None, tmp_path / "g.freshgo", f"{tmp_path}/out\0", layers=[lambda h, _: h], progress=False)


def test_converting_a_store(tmp_path: Path) -> None:
    with convert(GRAPH, tmp_path / "g.freshgo", progress=False) as store:
        with pytest.raises(errors.DTypeError, match=r"already the store '.*': .*copy it with relayout"):
            convert(store, tmp_path / "h.freshgo", progress=False)
        with pytest.raises(errors.InvalidArgumentError, match="no tensor 0, only 'x', 'feat'"):
            store[0]  # type: ignore[index]
        for read in (lambda: store.split("train", "paper"), lambda: store["a", "to", "b"]):
            with pytest.raises(errors.InvalidArgumentError, match=r"is homogeneous, got the (node|edge) type"):
                read()


def test_a_progress_that_nobody_can_call(tmp_path: Path) -> None:
    with pytest.raises(errors.DTypeError, match="progress must be True, False or a callable, got 'no'"):
        convert(GRAPH, tmp_path / "h.freshgo", progress="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x", [[1.0], [2.0]], "x must be a tensor, an array or the path of a .npy file, got [[1.0], [2.0]]"),
        ("train_mask", [True, False], "train_mask must be a tensor, an array or the path of a .npy file, got [True, "),
        ("x", scipy.sparse.eye(5, format="csr"), "file, got a csr_matrix: x.toarray() is an array"),
        ("y", pd.Series([1, 2, 3, 4, 5]), "file, got a Series: y.to_numpy() is an array"),
        ("price", pd.DataFrame({"eur": [1.0]}), "file, got a DataFrame: price.to_numpy() is an array"),
        ("x", {"a": torch.ones(5)}, "file, got {'a': tensor("),
    ],
)
def test_rows_in_what_is_no_array(name: str, value: object, said: str, tmp_path: Path) -> None:
    """They were attributes of the whole graph, which every batch had whole, or were left out with a warning."""
    graph = {"edge_index": EDGES, name: value}
    for call in (lambda: convert(graph, tmp_path / "g", progress=False), lambda: Loader(graph, [2])):
        with pytest.raises(errors.DTypeError, match=re.escape(said)):
            call()
    with Loader({**GRAPH, "y": 3}, [2]) as loader:  # the label of the graph
        assert next(iter(loader)).y == 3


def test_edges_of_another_form() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"no 'edge_index' .*; torch.stack\(\[src, dst\]\) is one"):
        Loader({"src": EDGES[0], "dst": EDGES[1], "feat": torch.ones(5, 1)}, [2])
    with pytest.raises(errors.InvalidArgumentError, match=r"no 'edge_index' .*; convert_tables\(\) takes tables of"):
        Loader(pd.DataFrame({"src": [0], "dst": [1]}), [2])  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_a_mask_of_integers(dtype: torch.dtype) -> None:
    """It trained on the nodes 0 and 1 alone."""
    nodes = 16
    graph = {"edge_index": torch.zeros(2, 0, dtype=torch.long), "num_nodes": nodes}
    said = rf"input_nodes of dtype {str(dtype)[6:]} would be ids, but these are 16 zeros and ones.*: use mask.bool\(\)$"
    with pytest.raises(errors.InvalidArgumentError, match=said):
        Loader(graph, [2], torch.arange(nodes, dtype=dtype) % 2)
    for ids in (torch.zeros(nodes - 1, dtype=dtype), torch.arange(nodes, dtype=dtype) % 3):
        with Loader(graph, [2], ids, batch_size=nodes) as loader:
            assert next(iter(loader)).n_id.tolist() == ids.tolist()
    with pytest.raises(errors.DTypeError, match="input_nodes must be node ids, a bool mask, a split's name or None"):
        Loader(graph, [2], torch.tensor([0, 1]).to_sparse())


def test_sizes_of_numpy() -> None:
    with Loader(GRAPH, [2], memory=np.int64(1 << 26)) as loader:
        assert len(list(loader)) == 5
    with pytest.raises(errors.InvalidArgumentError, match="memory must be at least 0 bytes, got -1"):
        Loader(GRAPH, [2], memory=np.int32(-1))


def test_a_loader_for_a_trace() -> None:
    with Loader(GRAPH, [2]) as loader:
        with pytest.raises(errors.DTypeError, match=r"got a Loader: give its trace\(epoch\)"):
            simulate(loader, capacity=2)
        assert loader.state_dict()["epoch"] == 0  # none was run


def test_a_history_that_no_loader_has() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"has no loader: make one with Loader\(\.\.\., history="):
        History().update()


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_second_derivatives(reduce: str) -> None:
    x = torch.randn(5, 2, requires_grad=True)
    index, ptr = torch.tensor([0, 1, 1, 2, 4]), torch.tensor([0, 2, 5])
    out = ops.aggregate(x, index, ptr, reduce=reduce)
    (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    (plain,) = torch.autograd.grad(ops.aggregate(x, index, ptr, reduce=reduce).square().sum(), x)
    assert grad.equal(plain)
    with pytest.raises(errors.InvalidArgumentError, match="no second derivatives"):
        grad.square().sum().backward()


def test_accelerating_what_is_no_model() -> None:
    pytest.importorskip("torch_geometric")
    from freshgo.nn import accelerate

    with pytest.raises(errors.DTypeError, match=r"model must be a torch\.nn\.Module, got list"):
        accelerate([torch.nn.Linear(2, 2)])  # type: ignore[arg-type]


def test_numpy_and_lists_do_as_well() -> None:
    for nodes in (np.array([1, 3]), [1, 3], (1, 3), range(1, 4, 2), torch.tensor([1, 3], dtype=torch.int32)):
        with Loader(GRAPH, np.array([2]), nodes, batch_size=np.int64(2)) as loader:
            assert next(iter(loader)).n_id[:2].tolist() == [1, 3]


@pytest.mark.parametrize("data", ["homogeneous", "typed"])
def test_warnings_point_at_the_line_that_is_to_change(data: str) -> None:
    import warnings

    from freshgo import LinkLoader, Loader
    from freshgo._loader import keywords

    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    plain = {"edge_index": edges, "x": torch.zeros(3, 1), "title": object()}
    graph = (
        plain
        if data == "homogeneous"
        else {"a": {"x": torch.zeros(3, 1), "title": object()}, ("a", "to", "a"): {"edge_index": edges}}
    )
    nodes, links = (None, edges) if data == "homogeneous" else ("a", (("a", "to", "a"), edges))
    for make in (
        lambda: Loader(graph, [1], nodes, timeout=3),
        lambda: LinkLoader(graph, [1], links, timeout=3),
    ):
        keywords._warned.clear()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            make().close()
        assert len(seen) == 2
        assert {warning.filename for warning in seen} == {__file__}
