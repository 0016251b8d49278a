"""Tables that learn outside of training: files with keys, tensors of stores, the input of an inference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from table_training import InMemory
from torch import Tensor

import freshgo
from freshgo import Loader, Table, convert, convert_tables, infer, nn, optim
from freshgo.errors import (
    BudgetError,
    ClosedError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
)

USERS, ITEMS = 70, 50


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of users with strings as keys and items with numbers."""
    directory, rng = tmp_path_factory.mktemp("keyed"), np.random.default_rng(0)
    users = [f"u{i:03}" for i in range(USERS)]
    (directory / "users.csv").write_text("\n".join(["id", *users]))
    (directory / "items.csv").write_text("\n".join(["id", *(str(3 * i) for i in range(ITEMS))]))
    lines = [f"{users[rng.integers(USERS)]},{3 * rng.integers(ITEMS)}" for _ in range(300)]
    (directory / "buys.csv").write_text("\n".join(["user,item", *lines]))
    convert_tables(
        path=directory / "store",
        nodes={"user": Table(directory / "users.csv", id="id"), "item": Table(directory / "items.csv", id="id")},
        edges={("user", "buys", "item"): Table(directory / "buys.csv", src="user", dst="item")},
        progress=False,
    ).close()
    return directory / "store"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[freshgo.Store]:
    generator = torch.Generator().manual_seed(0)
    data = {
        "num_nodes": 90,
        "edge_index": torch.randint(90, (2, 700), generator=generator),
        "w": torch.rand(700, generator=generator),
    }
    with convert(data, tmp_path / "plain.store", progress=False) as store:
        yield store


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def rows_of(emb: nn.Embedding) -> Tensor:
    with torch.no_grad():
        return emb(torch.arange(emb.num_embeddings))


def trained(emb: nn.Embedding, store: freshgo.Store) -> None:
    """Change rows of a table, which are not saved."""
    optimizer = optim.SGD(emb.tables(), lr=0.02)
    with Loader(store, [3], batch_size=20, embeddings=emb) as loader:
        for batch in loader:
            emb(batch.n_id).pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(("node_type", "count"), [("user", USERS), ("item", ITEMS)])
def test_parquet_has_the_keys_of_the_store(keyed: Path, tmp_path: Path, node_type: str, count: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=count, embedding_dim=3) as emb:
        emb.export(tmp_path / "keyed.parquet", store=keyed, node_type=node_type)
        emb.export(tmp_path / "plain.parquet", memory="4KiB")
        rows = rows_of(emb)
        for name in ("keyed", "plain"):
            read = parquet.read_table(tmp_path / f"{name}.parquet")
            assert np.array_equal(np.stack(read["embedding"].to_numpy()), rows.numpy())
            keys = {"user": [f"u{i:03}" for i in range(USERS)], "item": [3 * i for i in range(ITEMS)]}[node_type]
            assert read["id"].to_pylist() == (keys if name == "keyed" else list(range(count)))
        assert parquet.ParquetFile(tmp_path / "plain.parquet").num_row_groups > 1, "memory bounds what is held at once"
    assert names(tmp_path) == ["keyed.parquet", "plain.parquet", "t.emb"]


def test_a_tensor_of_a_store(keyed: Path, plain: freshgo.Store, tmp_path: Path) -> None:
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=90, embedding_dim=3) as emb:
        trained(emb, plain)
        emb.export((plain, "e"))
        rows = rows_of(emb)
        with freshgo.Store.open(plain.path) as store, Loader(store, [0], batch_size=90) as loader:
            assert torch.equal(next(iter(loader)).e, rows) and store.tensors["w"].level == "edge"
        with pytest.raises(StoreExistsError, match="has the tensor 'e' already; pass overwrite=True"):
            emb.export((plain.path, "e"))
        with freshgo.Store.open(plain.path) as store:
            trained(emb, store)
        emb.export((plain.path, "e"), overwrite=True)
        with freshgo.Store.open(plain.path) as store, Loader(store, [0], batch_size=90) as loader:
            assert torch.equal(next(iter(loader)).e, rows_of(emb)) and not torch.equal(rows, rows_of(emb))
            with pytest.raises(InvalidArgumentError, match="'w', an edge-level tensor"):
                emb.export((store, "w"), overwrite=True)
    freshgo.update(keyed, tmp_path / "typed.store", progress=False).close()
    with nn.Embedding(tmp_path / "i.emb", num_embeddings=ITEMS, embedding_dim=2, dtype=torch.bfloat16) as emb:
        emb.export((tmp_path / "typed.store", "e"), node_type="item")
        with Loader(tmp_path / "typed.store", [0], "item", batch_size=ITEMS) as loader:
            batch = next(iter(loader))
            assert torch.equal(batch["item"].e, rows_of(emb).float()) and "e" not in batch["user"]
    assert not [name for name in names(tmp_path) if "export" in name]


def test_wrong_exports_name_what_is_expected(keyed: Path, plain: freshgo.Store, tmp_path: Path) -> None:
    (tmp_path / "there.npy").write_bytes(b"")
    typed = ["node_type must be one of ", "'item'", "'user'", "got "]
    cases: list[tuple[type[Exception], list[str], Any, dict[str, Any]]] = [
        (InvalidArgumentError, ["suffix '.csv', expected .npy, .parquet"], tmp_path / "a.csv", {}),
        (DTypeError, ["out must be a path"], 3, {}),
        (DTypeError, ["out must be a path"], ("a", 3), {}),
        (InvalidArgumentError, ["is a URL"], "s3://bucket/a.npy", {}),
        (InvalidArgumentError, ["a.npy has no keys"], tmp_path / "a.npy", {"store": keyed}),
        (InvalidArgumentError, ["is a directory"], keyed, {}),
        (StoreExistsError, ["there.npy"], tmp_path / "there.npy", {}),
        (StoreNotFoundError, ["nowhere"], tmp_path / "nowhere" / "a.npy", {}),
        (StoreNotFoundError, ["nowhere"], (tmp_path / "nowhere", "e"), {}),
        (InvalidArgumentError, typed, tmp_path / "a.parquet", {"store": keyed}),
        (InvalidArgumentError, typed, (keyed, "e"), {"node_type": "usr"}),
        (
            InvalidArgumentError,
            ["has 90 rows, expected one for each of 70 nodes of type 'user'"],
            (keyed, "e"),
            {"node_type": "user"},
        ),
        (InvalidArgumentError, ["homogeneous: omit node_type='user'"], (plain, "e"), {"node_type": "user"}),
        (InvalidArgumentError, ["no keys"], tmp_path / "a.parquet", {"store": plain}),
        (InvalidArgumentError, ["node_type='user' needs store="], tmp_path / "a.parquet", {"node_type": "user"}),
        (InvalidArgumentError, ["names its store itself"], (plain, "e"), {"store": plain}),
        (DTypeError, ["overwrite"], tmp_path / "a.npy", {"overwrite": 3}),
    ]
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=90, embedding_dim=3) as emb:
        for kind, words, out, options in cases:
            with pytest.raises(kind) as refused:
                emb.export(out, **options)
            assert all(word in str(refused.value) for word in words), (words, str(refused.value))
    with pytest.raises(ClosedError):
        emb.export(tmp_path / "a.npy")
    assert names(tmp_path) == ["plain.store", "t.emb", "there.npy"]


class Net(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = layer(3, 8), layer(8, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def edges_of(store: freshgo.Store) -> Tensor:
    with Loader(store, [-1], batch_size=90) as loader:
        batch = next(iter(loader))
    edges: Tensor = batch.n_id[batch.edge_index]
    return edges


@pytest.mark.parametrize("layer", ["SAGEConv", "GATConv"])
def test_rows_are_the_input_of_an_inference(plain: freshgo.Store, tmp_path: Path, layer: str) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model = Net(getattr(pyg, layer)).eval()
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=90, embedding_dim=3) as emb:
        trained(emb, plain)
        expected = model(rows_of(emb), edges_of(plain)).detach()
        options: dict[str, Any] = {"embeddings": emb, "progress": False}
        infer(model, plain, tmp_path / "out.npy", **options)
        assert torch.allclose(torch.from_numpy(np.load(tmp_path / "out.npy")), expected, atol=1e-5)
        trained(emb, plain)
        expected = model(rows_of(emb), edges_of(plain)).detach()
        infer(model, plain, (plain, "e"), nodes=torch.tensor([5, 3]), **options)
        with freshgo.Store.open(plain.path) as store, Loader(store, [0], batch_size=90) as loader:
            made = next(iter(loader)).e
            assert torch.allclose(made[[5, 3]], expected[[5, 3]], atol=1e-5) and made.isnan().any(1).sum() == 88
            assert set(store.tensors) == {"e", "w"}, "the rows of the table are no tensor of it"
    assert names(tmp_path) == ["out.npy", "plain.store", "t.emb"]


@pytest.mark.parametrize("memory", ["6MiB", "32MiB"])
def test_an_inference_before_the_step_of_a_batch(plain: freshgo.Store, tmp_path: Path, memory: str) -> None:
    """It sees the rows that the steps before have left, to the bit, and the batch goes on to its own step."""
    pyg = pytest.importorskip("torch_geometric.nn")
    model, out = Net(pyg.SAGEConv).eval(), tmp_path / "out.npy"
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=90, embedding_dim=3) as emb:
        reference = InMemory(emb)
        optimizer, other = optim.Adagrad(emb.tables(), lr=0.1), torch.optim.Adagrad(reference.tables(), lr=0.1)
        with Loader(plain, [3], batch_size=10, embeddings=emb, memory=memory, shuffle=True) as loader:
            for i, batch in enumerate(loader):
                for lookup, by in ((emb, optimizer), (reference, other)):
                    by.zero_grad()
                    lookup(batch.n_id[:: 1 + i % 2]).pow(2).sum().backward()
                weight = reference.table.weight.detach()
                if i % 3 == 1:
                    infer(model, plain, out, embeddings=emb, progress=False, overwrite=True)
                    with nn.Embedding.from_array(tmp_path / f"{i}.emb", weight) as in_memory:
                        infer(model, plain, tmp_path / f"{i}.npy", embeddings=in_memory, progress=False)
                    assert np.array_equal(np.load(out), np.load(tmp_path / f"{i}.npy"))
                    expected = model(weight, edges_of(plain)).detach()
                    assert torch.allclose(torch.from_numpy(np.load(out)), expected, atol=1e-5)
                optimizer.step()
                other.step()
            assert i > 4
        assert torch.equal(rows_of(emb), reference.table.weight)


def test_an_inference_over_types(keyed: Path, tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    types = ("user", "buys", "item")

    class Typed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = pyg.HeteroConv({types: pyg.SAGEConv((3, 2), 4)})

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict)

    model = Typed().eval()
    with (
        nn.Embedding(tmp_path / "u.emb", num_embeddings=USERS, embedding_dim=3) as users,
        nn.Embedding(tmp_path / "i.emb", num_embeddings=ITEMS, embedding_dim=2) as items,
    ):
        tables = {"user": users, "item": items}
        infer(model, keyed, tmp_path / "out", nodes="item", embeddings=tables, progress=False)
        with Loader(keyed, [-1], "item", batch_size=ITEMS) as loader:
            batch = next(iter(loader))
        x = {name: rows_of(emb)[batch[name].n_id] for name, emb in tables.items()}
        expected = model(x, {types: batch[types].edge_index})["item"]
        made = torch.from_numpy(np.load(tmp_path / "out" / "item.npy"))
        assert torch.allclose(made[batch["item"].n_id], expected, atol=1e-5)


def test_an_inference_goes_on_where_rows_are_the_same(plain: freshgo.Store, tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model, begun = Net(pyg.GATConv).eval(), []

    class EndedError(Exception):
        pass

    def run(end: int | None) -> None:
        stages: list[str] = []
        begun.append(stages)

        def progress(stage: str, done: int, total: int) -> None:
            stages.append(stage)
            if stage.startswith("layer 2 of 2") and end is not None and done >= end:
                raise EndedError

        infer(model, plain, tmp_path / "out.npy", embeddings=emb, batch_size=30, progress=progress, overwrite=True)

    with nn.Embedding(tmp_path / "t.emb", num_embeddings=90, embedding_dim=3) as emb:
        for change in (False, True):
            with pytest.raises(EndedError):
                run(30)
            if change:
                trained(emb, plain)
            expected = model(rows_of(emb), edges_of(plain)).detach()
            run(None)
            assert ("layer 1 of 2" in begun[-1]) == change
            assert torch.allclose(torch.from_numpy(np.load(tmp_path / "out.npy")), expected, atol=1e-5)


def test_wrong_tables_of_an_inference(keyed: Path, plain: freshgo.Store, tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model = Net(pyg.SAGEConv).eval()
    with (
        nn.Embedding(tmp_path / "t.emb", num_embeddings=89, embedding_dim=3) as short,
        nn.Embedding(tmp_path / "w.emb", num_embeddings=90, embedding_dim=5) as wide,
        nn.Embedding(tmp_path / "u.emb", num_embeddings=90, embedding_dim=3) as right,
    ):
        cases: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
            (InvalidArgumentError, "has 89 rows, expected one for each of 90 nodes", plain, {"embeddings": short}),
            (InvalidArgumentError, "got a dict with 'user'", plain, {"embeddings": {"user": right}}),
            (InvalidArgumentError, "dict by node type", keyed, {"embeddings": right}),
            (DTypeError, "freshgo.nn.Embedding", plain, {"embeddings": torch.nn.Embedding(90, 3)}),
            (DTypeError, "freshgo.nn.Embedding", plain, {"embeddings": [right]}),
            (DTypeError, "at least one table", keyed, {"embeddings": {}}),
            (InvalidArgumentError, "fails on rows like those of", plain, {"embeddings": wide}),
            (InvalidArgumentError, "tensor='w' is an edge-level", plain, {"embeddings": right, "tensor": "w"}),
            (BudgetError, "too small", plain, {"embeddings": right, "memory": 1000}),
        ]
        for kind, words, store, options in cases:
            with pytest.raises(kind) as refused:
                infer(model, store, tmp_path / "out.npy", progress=False, **options)
            assert words in str(refused.value), str(refused.value)
    with pytest.raises(ClosedError):
        infer(model, plain, tmp_path / "out.npy", embeddings=right, progress=False)
