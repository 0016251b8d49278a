"""Modules for models: embeddings larger than memory, PyG's layers on the operators of ``freshgo.ops``, and first layers
that are precomputed. All but :class:`Embedding` need torch_geometric.

    from freshgo.nn import accelerate

    report = accelerate(model)      # in place; report says which layers were replaced and why others were not
    print(report)
    ...
    report.undo()

A replaced layer is the same module with the same parameters, hooks and ``state_dict``. Only the way from ``edge_index``
to the aggregated rows differs: no message is written. It is used for tensors that the operators support, on the CPU,
and on a GPU if the library has the device path; for everything else the layer uses PyG's own code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from freshgo._nn.embedding import Embedding

if TYPE_CHECKING:
    from freshgo._nn.replaced import Precomputation, Report, accelerate, precomputed

__all__ = ["Embedding", "Precomputation", "Report", "accelerate", "precomputed"]

if not TYPE_CHECKING:  # names that need PyG are imported at their first use

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'freshgo.nn' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module("freshgo._nn.replaced"), name)
        return value
