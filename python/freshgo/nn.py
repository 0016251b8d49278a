"""Modules for models: embeddings larger than memory, PyG's layers on the operators of ``freshgo.ops``, first layers
that are precomputed, and training steps that are recorded. All but :class:`Embedding` and :class:`record` need
torch_geometric.

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
    from freshgo._nn.recorded import record
    from freshgo._nn.replaced import Precomputation, Report, accelerate, precomputed

__all__ = ["Embedding", "Precomputation", "Report", "accelerate", "precomputed", "record"]

if not TYPE_CHECKING:  # names that need PyG, or much of freshgo, are imported at their first use

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'freshgo.nn' has no attribute {name!r}")
        module = "recorded" if name == "record" else "replaced"
        value = globals()[name] = getattr(importlib.import_module(f"freshgo._nn.{module}"), name)
        return value
