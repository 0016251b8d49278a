"""Batches as PyG objects. Importing this module needs torch_geometric."""

from __future__ import annotations

import torch_geometric.data

from freshgo.batch import Blocks


class Data(Blocks, torch_geometric.data.Data):  # type: ignore[misc]  # PyG has no type hints
    """PyG's Data, with :meth:`~freshgo.batch.Blocks.blocks`."""
