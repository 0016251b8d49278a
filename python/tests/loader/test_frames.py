"""TensorFrames of PyTorch Frame: stored by columns, and in every batch with the rows of its nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of

from freshgo import LinkLoader, Loader, Store, append, convert, errors, relayout, update

torch_frame = pytest.importorskip("torch_frame")
pyg = pytest.importorskip("torch_geometric.data")
from torch_frame.data import MultiEmbeddingTensor, MultiNestedTensor  # noqa: E402

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}
USERS, ITEMS, BUYS = 60, 40, 500
EDGE, BACK = ("user", "buys", "item"), ("item", "rev_buys", "user")


def users(count: int = USERS, seed: int = 0) -> Any:
    """A column of each stype whose rows have one length, with missing values as the package marks them."""
    gen = torch.Generator().manual_seed(seed_of(seed))
    numbers = torch.randn(count, 3, generator=gen)
    numbers[::7, 1] = torch.nan
    categories = torch.randint(-1, 5, (count, 2), generator=gen)
    times = torch.randint(0, 60, (count, 1, 7), generator=gen)
    embeddings = [torch.randn(count, width, generator=gen) for width in (4, 1, 6)]
    return torch_frame.TensorFrame(
        {
            torch_frame.numerical: numbers,
            torch_frame.categorical: categories,
            torch_frame.timestamp: times,
            torch_frame.embedding: MultiEmbeddingTensor.from_tensor_list(embeddings),
        },
        {
            torch_frame.numerical: ["age", "spent", "ü"],
            torch_frame.categorical: ["city", "plan"],
            torch_frame.timestamp: ["joined"],
            torch_frame.embedding: ["bio", "score", "photo"],
        },
        torch.rand(count, generator=gen),
    )


def items(count: int = ITEMS) -> Any:
    gen = torch.Generator().manual_seed(seed_of(3))
    return torch_frame.TensorFrame(
        {torch_frame.numerical: torch.randn(count, 2, generator=gen)}, {torch_frame.numerical: ["price", "weight"]}
    )


def shop() -> Any:
    rng = np.random.default_rng(seed_of(1))
    data = pyg.HeteroData()
    data["user"].tf, data["item"].tf = users(), items()
    data["user"].y = torch.from_numpy(rng.integers(0, 2, USERS))
    data["item"].x = torch.from_numpy(rng.random((ITEMS, 5), dtype=np.float32))
    data[EDGE].edge_index = torch.from_numpy(np.stack([rng.integers(0, USERS, BUYS), rng.integers(0, ITEMS, BUYS)]))
    data[BACK].edge_index = data[EDGE].edge_index.flip(0)
    return data


def assert_rows(batch: Any, data: Any) -> None:
    for node_type in ("user", "item"):
        assert same(batch[node_type].tf, data[node_type].tf[batch[node_type].n_id])
        assert not any("." in name for name in batch[node_type].keys())  # noqa: SIM118  (a storage is no mapping)


def same(found: Any, want: Any) -> bool:
    """TensorFrame's own comparison, with the order of columns."""
    assert list(found.feat_dict) == list(want.feat_dict)
    assert [rows.dtype for rows in found.feat_dict.values()] == [rows.dtype for rows in want.feat_dict.values()]
    return bool(found == want)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frames") / "shop"
    convert(shop(), path, **SMALL).close()
    return path


@pytest.mark.parametrize("where", ["store", "memory", "relaid"])
def test_batches_have_the_rows_of_their_nodes(path: Path, tmp_path: Path, where: str) -> None:
    data: Any = shop()
    graph: Any = data if where == "memory" else path
    if where == "relaid":
        relayout(path, tmp_path / "relaid", **SMALL).close()
        graph = tmp_path / "relaid"
    with Loader(graph, [4, 4], "user", batch_size=16, shuffle=True, memory="64MiB") as loader:
        batches = list(loader)
        assert sum(batch["user"].batch_size for batch in batches) == USERS
        for batch in [*batches, loader.sample([5, 3])]:
            assert_rows(batch, data)
            assert batch["user"].y.tolist() == data["user"].y[batch["user"].n_id].tolist()
            assert_rows(batch.clone().to("cpu"), data)
    with LinkLoader(graph, [4], edge_label_index=EDGE, batch_size=100, memory="64MiB") as links:
        assert_rows(next(iter(links)), data)


def test_a_homogeneous_graph(tmp_path: Path) -> None:
    data = pyg.Data(edge_index=torch.randint(0, USERS, (2, 300)), tf=users())
    with convert(data, tmp_path / "g", **SMALL) as store:
        assert store.num_nodes == USERS
        assert store.tensors["tf.embedding"].shape == (USERS, 11)
        for graph in (store, data):
            with Loader(graph, [3], batch_size=20, memory="64MiB") as loader:
                for batch in loader:
                    assert same(batch.tf, data.tf[batch.n_id])


def test_narrow_columns_and_stores_that_change(path: Path, tmp_path: Path) -> None:
    data = shop()
    with update(path, tmp_path / "without", drop={"user": ["tf.timestamp", "tf.y"]}, **SMALL) as store:
        with Loader(store, [4], "user", batch_size=60, memory="64MiB") as loader:
            batch = next(iter(loader))
    columns = data["user"].tf[batch["user"].n_id]
    del columns.feat_dict[torch_frame.timestamp], columns.col_names_dict[torch_frame.timestamp]
    columns.y = None
    assert same(batch["user"].tf, columns)
    with pytest.raises(errors.InvalidArgumentError, match=r"user\.tf\.numerical has shape \[60, 2\].*rows of 3"):
        update(path, tmp_path / "no", tensors={"user": {"tf.numerical": torch.zeros(USERS, 2)}}, **SMALL)

    more = users(7, seed=9)
    with append(
        path, tmp_path / "more", nodes={"user": {"tf": more, "y": torch.zeros(7, dtype=torch.long)}}, **SMALL
    ) as store:
        with Loader(store, [4], ("user", torch.arange(USERS, USERS + 7)), batch_size=7, memory="64MiB") as loader:
            assert same(next(iter(loader))["user"].tf[:7], more)
    fewer = torch_frame.TensorFrame({torch_frame.numerical: torch.zeros(1, 1)}, {torch_frame.numerical: ["age"]})
    with pytest.raises(errors.InvalidArgumentError, match=r"numerical: age, expected numerical: age, spent, ü"):
        append(path, tmp_path / "no", nodes={"user": {"tf": fewer, "y": torch.zeros(1, dtype=torch.long)}}, **SMALL)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("stype", ["multicategorical", "sequence_numerical", "text_tokenized"])
def test_rows_that_differ_in_length_are_refused(tmp_path: Path, stype: str) -> None:
    ragged = MultiNestedTensor.from_tensor_mat([[torch.arange(i % 3)] for i in range(ITEMS)])
    kind = torch_frame.stype(stype)
    data = shop()
    data["item"].tf = torch_frame.TensorFrame(
        {kind: {"input_ids": ragged} if stype == "text_tokenized" else ragged}, {kind: ["tags"]}
    )
    for use in (lambda: convert(data, tmp_path / "g", **SMALL), lambda: Loader(data, [2], "user")):
        with pytest.raises(
            errors.DTypeError, match=rf"item\.tf has columns 'tags' of stype {stype}, whose rows differ"
        ):
            use()
    assert not (tmp_path / "g").exists()


def test_bad_input(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from freshgo import infer

    data = shop()
    data["item"]["tf.numerical"] = torch.zeros(ITEMS)
    with pytest.raises(errors.InvalidArgumentError, match=r"item\.tf\.numerical is given twice"):
        convert(data, tmp_path / "g", **SMALL)
    data = shop()
    data["item"].tf = items(ITEMS - 1)
    with pytest.raises(errors.InvalidArgumentError, match=r"item\."):
        convert(data, tmp_path / "g", **SMALL)
    with pytest.raises(errors.InvalidArgumentError, match="is part of the TensorFrame 'tf'"):
        infer(None, path, tmp_path / "out", layers=[lambda h, batch: h], tensor="tf.numerical", progress=False)
    monkeypatch.setitem(sys.modules, "torch_frame", None)
    with Store(path) as store, pytest.raises(errors.LibraryError, match=r"TensorFrame user\.tf, item\.tf needs"):
        Loader(store, [2], "user")


def test_a_relational_task_trains(path: Path) -> None:
    """As RelBench's models do: columns are encoded, then SAGE over relations."""
    from torch_frame.data.stats import StatType
    from torch_geometric.nn import HeteroConv, SAGEConv

    frame = users()
    truth = (frame.feat_dict[torch_frame.numerical][:, 0] > 0).long()
    stats = {StatType.MEAN: 0.0, StatType.STD: 1.0, StatType.QUANTILES: [-2.0, -1.0, 0.0, 1.0, 2.0]}
    torch.manual_seed(seed_of(5))

    def encoder(frame: Any) -> Any:
        names = {kind: of for kind, of in frame.col_names_dict.items() if kind == torch_frame.numerical}
        return torch_frame.nn.StypeWiseFeatureEncoder(
            8,
            {column: stats for of in names.values() for column in of},
            names,
            {torch_frame.numerical: torch_frame.nn.LinearEncoder()},
        )

    encoders = torch.nn.ModuleDict({"user": encoder(frame), "item": encoder(items())})
    conv = HeteroConv({EDGE: SAGEConv(8, 8), BACK: SAGEConv(8, 8)})
    head = torch.nn.Linear(8, 2)
    parameters = [*encoders.parameters(), *conv.parameters(), *head.parameters()]
    optimizer, losses = torch.optim.Adam(parameters, 0.02), []
    with Loader(path, [5], "user", batch_size=20, shuffle=True, memory="64MiB") as loader:
        for _ in range(25):
            for batch in loader:
                h = {}
                for node_type, encode in encoders.items():
                    tf = batch[node_type].tf
                    numbers = tf.feat_dict[torch_frame.numerical].nan_to_num()
                    columns = {torch_frame.numerical: tf.col_names_dict[torch_frame.numerical]}
                    h[node_type] = encode(torch_frame.TensorFrame({torch_frame.numerical: numbers}, columns))[0].mean(1)
                seeds = batch["user"].batch_size
                out = head((conv(h, batch.edge_index_dict)["user"] + h["user"])[:seeds].relu())
                loss = torch.nn.functional.cross_entropy(out, truth[batch["user"].n_id[:seeds]])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert sum(losses[-3:]) < 0.6 * sum(losses[:3])
