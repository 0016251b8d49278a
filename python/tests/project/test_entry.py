"""Errors that leave the public API: their tracebacks are short, and nothing else of them changes."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import freshgo
from freshgo import Loader, Store
from freshgo._args.entry import VARIABLE, entry
from freshgo.errors import FreshgoError, InvalidArgumentError

PACKAGE = str(Path(freshgo.__file__).parent)


def ours(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]


MISTAKES: dict[str, Callable[[Path], Any]] = {
    "split": lambda path: Loader(path, [2, 2], "trian", batch_size=4),
    "ids": lambda path: Loader(path, [2, 2], [10**6], batch_size=4),
    "memory": lambda path: Loader(path, [2, 2], batch_size=4, memory="1KiB"),
    "path": lambda path: Store.open(path / "nothing"),
    "store": lambda path: Loader(path / "nothing", [2, 2]),
    "file": lambda path: freshgo.convert({"edge_index": path / "nothing.npy"}, path.parent / "new", progress=False),
    "tensor": lambda path: Store.open(path)["nothing"],
    "relayout": lambda path: freshgo.relayout(path, path.parent / "new", hotness="degre"),
    "operator": lambda path: freshgo.ops.aggregate(torch.ones(2, 2), torch.tensor([5]), torch.tensor([0, 1])),
    "option": lambda path: freshgo.Belady(superbtch=3),  # type: ignore[call-arg]
    "update": lambda path: freshgo.update(path, path.parent / "new", tensors={"x": torch.zeros(1)}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_has_at_most_four_frames_of_freshgo(
    store_path: Path, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FreshgoError) as short:
        MISTAKES[mistake](store_path)
    assert 1 <= len(ours(short.value)) <= 4
    monkeypatch.setenv(VARIABLE, "full")
    with pytest.raises(FreshgoError) as full:
        MISTAKES[mistake](store_path)
    assert str(full.value) == str(short.value)
    assert ours(full.value)[-1] == ours(short.value)[-1], "the line that found the mistake stays"
    if mistake in ("split", "ids", "memory"):
        assert len(ours(full.value)) > 6


def test_the_cause_the_context_and_frames_of_others_stay(store_path: Path) -> None:
    cause, reason = ValueError("because"), KeyError("while")

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        try:
            raise reason
        except KeyError:
            raise InvalidArgumentError("wrong") from cause

    @entry
    def outer() -> None:
        deep(5)

    with pytest.raises(InvalidArgumentError) as found:
        outer()
    assert found.value.__cause__ is cause and found.value.__context__ is reason
    assert [frame.name for frame in found.traceback if frame.name == "deep"] == ["deep"] * 6, "they are a user's"

    def transform(batch: Any) -> Any:
        raise InvalidArgumentError("the user's own")

    with Loader(store_path, [2], batch_size=4, transform=transform) as loader:
        with pytest.raises(InvalidArgumentError) as thrown:
            next(iter(loader))
    assert thrown.traceback[-1].name == "transform"
    assert len(ours(thrown.value)) <= 4

    @entry
    def numbers() -> Any:
        yield 1
        deep(2)

    found_numbers = numbers()
    assert next(found_numbers) == 1
    with pytest.raises(InvalidArgumentError):
        next(found_numbers)


def is_entry(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.endswith("entry.py")


WITHOUT = {"Block", "HeteroBlock", "FreshgoError", "QuantizationError", "StoreVersion", "TensorInfo"}
"""Data alone."""


def test_everything_public_is_an_entry_point() -> None:
    missing = []
    for name in set(freshgo.__all__) - WITHOUT:
        part = getattr(freshgo, name)
        if inspect.isfunction(part) and name != "library":
            missing += [] if is_entry(part) else [name]
        elif inspect.isclass(part):
            for method, member in vars(part).items():
                function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
                if inspect.isfunction(function) and not method.startswith("_") and not is_entry(function):
                    missing.append(f"{name}.{method}")
            if not is_entry(part.__init__) and "__init__" in vars(part):
                missing.append(name)
    assert not missing


def test_signatures_and_docstrings_stay() -> None:
    assert list(inspect.signature(freshgo.convert).parameters)[:2] == ["data", "path"]
    assert "batch_size" in inspect.signature(Loader).parameters
    assert inspect.getdoc(Store.open).startswith("Open the store")
    assert Store.num_nodes.__doc__.startswith("The number of nodes")
    assert inspect.unwrap(freshgo.convert).__name__ == "convert"
