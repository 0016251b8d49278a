"""The code of PyG that freshgo stands in for, as it was when that was written and tested.

``accelerate``, ``precomputed``, ``infer`` and ``history.attach`` give what PyG's layers give. A version of PyG that
changes one of them fails here, by the name of the layer, before anybody trains with it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import json
import re
from pathlib import Path

import pytest

from freshgo._nn import replaced as swaps
from freshgo.errors import LibraryError

pytest.importorskip("torch_geometric")

KNOWN: dict[str, dict[str, dict[str, str]]] = json.loads(Path(__file__).with_name("pyg_layers.json").read_text())
"""For each layer and each of its functions: digests of its code, and the first version of PyG that had it."""

MODULES = {
    "BasicGNN": "torch_geometric.nn.models.basic_gnn",
    "HeteroConv": "torch_geometric.nn.conv.hetero_conv",
}


def digest(function: object) -> str:
    """What the code of a function is, but for how it is wrapped."""
    source = re.sub(r"\s+", "", inspect.getsource(inspect.unwrap(function)))  # type: ignore[arg-type]
    return hashlib.sha256(source.encode()).hexdigest()[:12]


@pytest.mark.parametrize("layer", KNOWN)
def test_a_layer_is_the_one_that_we_know(layer: str) -> None:
    import torch_geometric

    module = importlib.import_module(MODULES.get(layer, "torch_geometric.nn"))
    cls = getattr(module, layer)
    found = {name: digest(vars(cls)[name]) for name in KNOWN[layer]}
    changed = {name: mine for name, mine in found.items() if mine not in KNOWN[layer][name]}
    assert not changed, (
        f"{layer} of PyG {torch_geometric.__version__} has another {', '.join(changed)} than the versions that freshgo "
        f"was written for: compare it, then add to {layer} in pyg_layers.json: {changed}"
    )


def test_versions_that_are_too_old_or_not_known_are_told_in_a_sentence() -> None:
    import torch_geometric

    from freshgo._batch import pyg_batches as pyg

    for version in (torch_geometric.__version__, "2.5.0", "2.8.0.post1"):
        pyg.check_version(version)
    with pytest.raises(
        LibraryError, match=r"PyG 2\.5 or newer, found 2\.4\.0: pip install 'torch_geometric>=2\.5,<2\.9'"
    ):
        pyg.check_version("2.4.0")
    with pytest.warns(UserWarning, match=r"not tested with PyG 2\.9\.0"):
        pyg.check_version("2.9.0.dev20270101")
    bounds = next(
        r for r in importlib.metadata.requires("freshgo") or [] if "torch_geometric" in r or "torch-geometric" in r
    )
    assert ">=2.5" in bounds and "<2.9" in bounds


def test_every_layer_that_is_replaced_is_watched() -> None:
    from freshgo._infer import linear
    from freshgo._nn import precomputed

    replaced = {kind.__name__ for kind in (*swaps._SWAPS, *precomputed.SWAPS)} | set(linear._KINDS)
    ours = {kind.__name__ for kind in precomputed.SWAPS if kind.__module__.startswith("freshgo.")}
    assert replaced - ours <= set(KNOWN)
