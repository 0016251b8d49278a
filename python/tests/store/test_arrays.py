"""Arrays as users have them: reversed, read-only, without elements, with a sign that is only noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from graphs import random_graph

from freshgo import LinkLoader, Loader, convert, simulate
from freshgo.errors import InvalidArgumentError


def reversed_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, with a negative stride."""
    return np.ascontiguousarray(values[::-1])[::-1]


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    graph = random_graph(300, 2000)
    return {"edge_index": graph["edge_index"], "x": graph["x"], "time": np.arange(2000) % 50}


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (Loader, {"input_nodes": np.arange(40)}),
        (Loader, {"cache": np.arange(300.0), "input_nodes": np.arange(40)}),
        (Loader, {"time_attr": "time", "input_time": np.arange(40), "input_nodes": list(range(40))}),
        (LinkLoader, {"edge_label_index": np.arange(80).reshape(2, 40)}),
        (LinkLoader, {"edge_label_index": np.arange(80).reshape(2, 40), "edge_label": np.arange(40)}),
        (
            LinkLoader,
            {
                "edge_label_index": np.arange(80).reshape(2, 40),
                "neg_sampling": {"mode": "binary", "amount": 1, "src_weight": np.arange(300.0)},
            },
        ),
    ],
)
def test_negative_strides_in_arguments(data: dict[str, Any], cls: Any, options: dict[str, Any]) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: turned(part) for name, part in value.items()}
        return reversed_of(value) if isinstance(value, np.ndarray) else value

    wanted = list(cls(data, [3, 2], **options, batch_size=16))
    came = list(cls(data, [3, 2], **turned(options), batch_size=16))
    assert all(torch.equal(a.n_id, b.n_id) for a, b in zip(came, wanted, strict=True))


def test_negative_strides_in_a_trace() -> None:
    trace = [np.array([3, 1, 2])[::-1], np.array([1, 3])[::-1]]
    assert simulate(trace, policy="lru", capacity=3).hits == 2


def test_read_only_arrays_warn_of_nothing() -> None:
    code = """
import numpy as np, warnings
from freshgo import Loader
def frozen(array):
    array.flags.writeable = False
    return array
data = {"edge_index": frozen(np.zeros((2, 5), dtype=np.int64)), "x": frozen(np.ones((9, 2)))}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loader = Loader(data, [2], frozen(np.arange(9)), cache=frozen(np.arange(9.0)))
assert not [w for w in caught if "writable" in str(w.message)], [str(w.message) for w in caught]
"""
    warm.run(code)  # PyTorch warns once in a process


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
@pytest.mark.parametrize("shape", [(0,), (0, 4), (0, 2, 3)])
def test_a_table_without_rows(make: Any, shape: tuple[int, ...]) -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    batch = next(iter(Loader({"edge_index": none, "x": np.ones((3, 2)), "w": make(shape)}, [2])))
    assert batch.w.shape == shape
    typed = {"a": {"x": np.ones((3, 2))}, "b": {"x": make(shape)}, ("b", "to", "a"): {"edge_index": none}}
    assert next(iter(Loader(typed, [2], "a")))["b"].x.shape == shape


def test_a_sign_that_is_only_noted(tmp_path: Path) -> None:
    x = torch.arange(1, 13, dtype=torch.float32).view(6, 2)
    negative = torch.complex(torch.zeros(6, 2), x).conj().imag
    assert negative.is_neg()
    data = {"edge_index": torch.zeros((2, 1), dtype=torch.int64), "x": negative}
    with convert(data, tmp_path / "s", progress=False) as store:
        assert torch.equal(store["x"], -x)
    assert torch.equal(next(iter(Loader(data, [2], batch_size=6))).x, -x)


def test_an_empty_split(tmp_path: Path) -> None:
    data = {"edge_index": np.zeros((2, 1), dtype=np.int64), "num_nodes": 3, "splits": {"none": [], "two": (1, 2)}}
    with convert(data, tmp_path / "s", progress=False) as store:
        assert store.splits == {"none": 0, "two": 2}


@pytest.mark.parametrize("name", ["a\0b", "a\udc80"])
def test_names_that_are_no_text(tmp_path: Path, name: str) -> None:
    data = {"edge_index": np.zeros((2, 1), dtype=np.int64), "num_nodes": 3, name: np.zeros(3)}
    with pytest.raises(InvalidArgumentError, match="zero characters"):
        convert(data, tmp_path / "s", progress=False)
    with pytest.raises(InvalidArgumentError, match="zero characters"):
        Loader(data, [2])
