"""Tables that learn, as files: what was saved is never harmed, and whoever has a table keeps others from it."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import left
import numpy as np
import pytest
import torch
from table_training import OPTIONS, Sage, epochs, everything, in_memory, table, train
from torch import Tensor

from freshgo import Loader, Ranks, nn, optim
from freshgo.errors import (
    BusyError,
    ClosedError,
    CorruptError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
)

nothing_left = left.fixture()


def test_a_training_goes_on_from_what_was_saved(store: Any, tmp_path: Path) -> None:
    batches = epochs(store, 2)
    with table(tmp_path / "t.emb", 3000) as emb:
        expected = in_memory(emb, "SparseAdam", batches)
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
            optimizer, sage = optim.SparseAdam(emb.tables(), lr=0.01), Sage()

            def first() -> Iterator[Any]:
                for i, batch in enumerate(loader):
                    yield batch
                    if i == 6:
                        return

            train(emb, optimizer, first(), sage)
            token = emb.save()
            state = copy.deepcopy([emb.state_dict(), optimizer.state_dict(), sage.state_dict(), loader.state_dict()])
            assert state[0] == {"_extra_state": {"token": token}}
            train(emb, optimizer, loader, sage)  # what comes to nothing
            with pytest.raises(InvalidArgumentError, match=r"call save\(\) before state_dict\(\)"):
                emb.state_dict()
    with nn.Embedding(tmp_path / "t.emb") as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, sage = optim.SparseAdam(emb.tables(), lr=0.5), Sage()
        for target, saved in zip((emb, optimizer, sage, loader), state, strict=True):
            target.load_state_dict(saved)
        train(emb, optimizer, loader, sage)
        train(emb, optimizer, loader, sage)
        assert torch.equal(everything(emb), expected)


def saves(emb: Any, optimizer: Any, loader: Any, count: int) -> tuple[list[Any], list[Any]]:
    """Train epochs with a save after each, and return the states and the rows of all of them."""
    states, rows = [], []
    for _ in range(count):
        train(emb, optimizer, loader, Sage())
        emb.save()
        states.append(emb.state_dict())
        rows.append(everything(emb))
    return states, rows


def test_a_state_is_that_of_its_table(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer = optim.SparseAdam(emb.tables())
        states, rows = saves(emb, optimizer, loader, 3)
        train(emb, optimizer, loader, Sage())
        for _ in loader:
            with pytest.raises(InvalidArgumentError, match="in mid-epoch"):
                emb.load_state_dict(states[2])
            break
        emb.load_state_dict(states[2])
        assert torch.equal(everything(emb), rows[2]) and optimizer.state_dict()["state"][0]["step"] == 3 * 30
        with pytest.raises(InvalidArgumentError, match=r"last saved as .*, and before that as"):
            emb.load_state_dict(states[0])
        emb.load_state_dict(states[1])
        assert torch.equal(everything(emb), rows[1]) and optimizer.state_dict()["state"][0]["step"] == 2 * 30
        assert emb.state_dict() == states[1]
        with pytest.raises(InvalidArgumentError, match="last saved as"):
            emb.load_state_dict(states[2])
        loader.set_epoch(2)
        train(emb, optimizer, loader, Sage())
        assert torch.equal(everything(emb), rows[2]), "the training goes on from there as it did"
        with (
            table(tmp_path / "other.emb", 3000) as other,
            pytest.raises(InvalidArgumentError, match=r"other\.emb was last"),
        ):
            other.load_state_dict(states[2])


def test_a_damaged_journal_takes_no_state_away(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer = optim.SparseAdam(emb.tables())
        states, rows = saves(emb, optimizer, loader, 2)
        journal = tmp_path / "t.emb" / f"journal-{states[0]['_extra_state']['token']}"
        whole = journal.read_bytes()
        journal.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
        with pytest.raises(CorruptError, match=journal.name):
            emb.load_state_dict(states[0])
        assert emb.state_dict() == states[1] and torch.equal(everything(emb), rows[1])
        train(emb, optimizer, loader, Sage())
        emb.load_state_dict(states[1])
        assert torch.equal(everything(emb), rows[1])
        journal.write_bytes(whole)
        emb.load_state_dict(states[0])
        assert torch.equal(everything(emb), rows[0])


def test_no_new_table_replaces_a_saved_one(tmp_path: Path) -> None:
    path = tmp_path / "t.emb"
    with table(path, 100) as emb:
        rows = everything(emb)
    kept = next(path.glob("state-*.json"))
    (path / "state.json").unlink()
    for sizes in ({}, {"num_embeddings": 100, "embedding_dim": 12}):
        with pytest.raises(CorruptError, match=rf"copy {kept.name} to state\.json .* or remove the directory"):
            nn.Embedding(path, **sizes)
    with pytest.raises(CorruptError, match=kept.name):
        nn.Embedding.from_array(path, torch.ones(10, 3))
    (path / "state.json").write_bytes(kept.read_bytes())
    with nn.Embedding(path) as emb:
        assert torch.equal(everything(emb), rows)


CHILD = """
import os, signal, sys
import numpy as np, torch
from freshgo import Loader, nn, optim
path, store, out, when = sys.argv[1:]
emb = nn.Embedding(path)
loader = Loader(store, [4, 3], batch_size=100, memory="6MiB", embeddings=emb)
optimizer = optim.Adagrad(emb.tables())
for i, batch in enumerate(loader):
    optimizer.zero_grad()
    emb(batch.n_id).pow(2).sum().backward()
    optimizer.step()
    if i == 10:
        emb.export(out)
        emb.save()
    if i == 20:
        with torch.no_grad():
            emb(torch.arange(10))  # the file has rows that were not saved
        if when == "read":
            os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["read", "end"])
def test_a_kill_leaves_the_state_saved_last(store_path: Path, tmp_path: Path, when: str) -> None:
    table(tmp_path / "t.emb", 3000).close()
    arguments = [sys.executable, "-c", CHILD, tmp_path / "t.emb", store_path, tmp_path / "saved.npy", when]
    assert subprocess.run(arguments).returncode == -signal.SIGKILL
    with nn.Embedding(tmp_path / "t.emb") as emb:
        assert np.array_equal(everything(emb).numpy(), np.load(tmp_path / "saved.npy"))
        optimizer = optim.Adagrad(emb.tables())
        assert optimizer.state_dict()["state"][0]["step"] == 11


def test_a_table_has_one_writer(store: Any, store_path: Path, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb:
        code = f"from freshgo import nn; nn.Embedding({str(tmp_path / 't.emb')!r})"
        failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "freshgo.errors.BusyError" in failed.stderr
        with pytest.raises(BusyError) as busy:
            nn.Embedding(tmp_path / "t.emb")
        assert str(busy.value).startswith(f"{tmp_path / 't.emb'}: the table is open already")
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS):
            with pytest.raises(InvalidArgumentError, match="close the loader first"):
                emb.close()
        Loader(store, [2], embeddings=emb).close()


def test_the_path_of_a_table_must_be_one() -> None:
    for wrong in (3, None, ["t.emb"]):
        with pytest.raises(DTypeError, match=r"path of a table must be a string or an os\.PathLike, got"):
            nn.Embedding(wrong, num_embeddings=3, embedding_dim=2)  # type: ignore[arg-type]
        with pytest.raises(DTypeError, match="path of a table"):
            nn.Embedding.from_array(wrong, torch.ones(3, 2))  # type: ignore[arg-type]


def test_what_does_not_go_together_is_refused(store: Any, graph: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, table(tmp_path / "u.emb", 2999) as short:
        cases: list[tuple[str, dict[str, Any]]] = [
            ("pin_memory", {"pin_memory": True}),
            ("transform_workers", {"transform_workers": 1, "transform": lambda batch: batch}),
            ("one rank", {"ranks": Ranks(rank=0, world_size=2)}),
            ("cache='auto' or 'belady', got 'lru'", {"cache": "lru"}),
            ("got 'none'", {"cache": None}),
            ("has 2999 rows, expected one for each of 3000 nodes", {"embeddings": short}),
            ("got a dict with 'paper'", {"embeddings": {"paper": emb}}),
            ("the same Embedding twice", {"embeddings": [emb, emb]}),
        ]
        for message, options in cases:
            with pytest.raises(InvalidArgumentError) as refused:
                Loader(store, [4, 3], **{"embeddings": emb, **options})
            assert message in str(refused.value)
        with pytest.raises(InvalidArgumentError, match="store"):
            Loader(graph, [4, 3], embeddings=emb)
        for wrong in ("t.emb", torch.nn.Embedding(3000, 4), [], {"": []}):
            with pytest.raises(DTypeError, match=r"freshgo\.nn\.Embedding"):
                Loader(store, [4, 3], embeddings=wrong)  # type: ignore[arg-type]
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
            for _ in loader:
                with pytest.raises(InvalidArgumentError, match="new state of its optimiser is refused in mid-epoch"):
                    optim.Adagrad(emb.tables())
                break
            optim.Adagrad(emb.tables())
            assert len(list(loader)) == 30, "the loader opens again, for wider rows"
            assert loader.stats()["openings"] == 2


def test_tables_are_opened_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.emb"
    for sizes in ({}, {"num_embeddings": 5}, {"embedding_dim": 5}):
        with pytest.raises(InvalidArgumentError, match=r"there is no table at .*give num_embeddings and embedding_dim"):
            nn.Embedding(path, **sizes)
    for wrong in ({"dtype": torch.float16}, {"init": "orthogonal"}, {"seed": 0.5}, {"num_embeddings": 0}):
        with pytest.raises((InvalidArgumentError, DTypeError), match=next(iter(wrong))):
            nn.Embedding(path, **{"num_embeddings": 10, "embedding_dim": 3, **wrong})  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    for place, kind, words in (
        (tmp_path / "file", StoreExistsError, "file: is a file, and a table is a directory"),
        (tmp_path / "nowhere" / "t.emb", StoreNotFoundError, "nowhere: no such directory to make a table in"),
    ):
        with pytest.raises(kind, match=words):
            nn.Embedding(place, num_embeddings=10, embedding_dim=3)
        with pytest.raises(kind, match=words):
            nn.Embedding.from_array(place, torch.ones(10, 3))
    with nn.Embedding(path, num_embeddings=10, embedding_dim=3, dtype=torch.bfloat16) as emb:
        assert (emb.num_embeddings, emb.embedding_dim, emb.dtype) == (10, 3, torch.bfloat16)
        assert repr(emb) == f"Embedding(10, 3, {path}, torch.bfloat16)"
        assert emb.eval()(torch.arange(0)).shape == (0, 3)
        for copier in (copy.copy, copy.deepcopy):
            with pytest.raises(DTypeError, match="cannot be copied"):
                copier(emb)
    with pytest.raises(ClosedError):
        emb.save()
    with nn.Embedding(path) as emb:
        assert emb.dtype == torch.bfloat16
    for name, wrong_size in (("num_embeddings", 11), ("embedding_dim", 4)):
        with pytest.raises(InvalidArgumentError, match=f"{name} of the table .* got {wrong_size}"):
            nn.Embedding(path, **{name: wrong_size})
    with (path / "rows").open("r+b") as file:
        file.seek(3)
        file.write(b"\x55")
    with nn.Embedding(path) as emb, pytest.raises(CorruptError), torch.no_grad():
        emb(torch.arange(10))


def test_the_first_rows_depend_on_the_seed_alone(tmp_path: Path) -> None:
    def first(name: str, **more: Any) -> Tensor:
        sizes = {"num_embeddings": 5000, "embedding_dim": 6}
        with nn.Embedding(tmp_path / name, **{**sizes, **more}) as emb:  # type: ignore[arg-type]
            assert emb._rows.file.table.describe()["changed"] is False
            return everything(emb)

    normal = first("a")
    torch.manual_seed(99)
    assert torch.equal(first("b"), normal)
    assert torch.equal(first("c", num_embeddings=9001)[:5000], normal)
    assert not set(map(tuple, first("d", seed=1).tolist())) & set(map(tuple, normal.tolist()))
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert normal.unique(dim=0).size(0) == 5000, "no two blocks are the same"
    for i, (init, kind) in enumerate(
        (
            *(("uniform", torch.nn.init.uniform_), ("xavier_uniform", torch.nn.init.xavier_uniform_)),
            *(("kaiming_uniform", torch.nn.init.kaiming_uniform_), ("xavier_normal", torch.nn.init.xavier_normal_)),
            *(
                ("kaiming_normal", torch.nn.init.kaiming_normal_),
                ("zeros", torch.nn.init.zeros_),
                ("ones", torch.nn.init.ones_),
            ),
        )
    ):
        rows, expected = first(f"e{i}", init=init), kind(torch.empty(5000, 6))
        assert torch.allclose(rows.std(), expected.std(), rtol=0.03) and rows.std() <= expected.std() * 1.03
        assert abs(rows.mean() - expected.mean()) < 0.03 * (expected.std() + 1e-9)
        if "normal" not in init:
            assert abs(rows.abs().max() - expected.abs().max()) <= 0.01 * expected.abs().max()


def test_rows_come_from_arrays_and_go_into_them(tmp_path: Path) -> None:
    rows = torch.randn(5000, 7)
    np.save(tmp_path / "rows.npy", rows.numpy())
    for i, given in enumerate((rows, rows.numpy(), np.load(tmp_path / "rows.npy", mmap_mode="r"))):
        with nn.Embedding.from_array(tmp_path / f"{i}.emb", given) as emb:
            assert torch.equal(everything(emb), rows)
            emb.export(tmp_path / "out.npy", overwrite=i > 0)
            assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "rows.npy").read_bytes()
    with pytest.raises(StoreExistsError):
        nn.Embedding.from_array(tmp_path / "0.emb", rows)
    with nn.Embedding.from_array(tmp_path / "b.emb", rows.bfloat16()) as emb:
        assert torch.equal(everything(emb), rows.bfloat16())
        emb.export(tmp_path / "out.npy", overwrite=True)
        assert np.array_equal(np.load(tmp_path / "out.npy"), rows.bfloat16().float().numpy())
        with pytest.raises(OSError, match="nowhere"):
            emb.export(tmp_path / "nowhere" / "out.npy")
    with pytest.raises(DTypeError, match="float64"):
        nn.Embedding.from_array(tmp_path / "c.emb", rows.double())
    with pytest.raises(InvalidArgumentError, match="num_embeddings, embedding_dim"):
        nn.Embedding.from_array(tmp_path / "c.emb", rows[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.emb",
        "1.emb",
        "2.emb",
        "b.emb",
        "out.npy",
        "rows.npy",
    ]


@pytest.mark.parametrize("moment", ["written", "aside"])
def test_a_table_that_was_being_widened_is_one_or_the_other(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "t.emb"
    with table(path, 100) as emb:
        before = everything(emb)
    with table(tmp_path / ".t.emb.wider", 100, seed=7) as emb:
        after = everything(emb)
    if moment == "aside":
        path.rename(tmp_path / ".t.emb.before")
    with nn.Embedding(path) as emb:
        assert torch.equal(everything(emb), before if moment == "written" else after)
    assert [one.name for one in tmp_path.iterdir()] == ["t.emb"]
