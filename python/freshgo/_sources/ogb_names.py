"""What OGB calls its data sets and tensors, and what its files do not say."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """A data set of OGB whose graph is in CSV files."""

    inverse: bool
    """Its files have each edge once, and OGB adds the other direction (``add_inverse_edge``)."""
    split: str
    """The directory of its split, in ``split``."""


KNOWN = {
    "ogbn-proteins": Known(True, "species"),
    "ogbn-products": Known(True, "sales_ranking"),
    "ogbn-arxiv": Known(False, "time"),
    "ogbn-mag": Known(False, "time"),
    "ogbn-papers100M": Known(False, "time"),
    "ogbl-ppa": Known(True, "throughput"),
    "ogbl-collab": Known(True, "time"),
    "ogbl-citation2": Known(False, "time"),
    "ogbl-wikikg2": Known(False, "time"),
    "ogbl-ddi": Known(True, "target"),
    "ogbl-biokg": Known(False, "random"),
    "ogbl-vessel": Known(False, "spatial"),
}
"""From ``master.csv`` of the package ``ogb``, version 1.3.6."""

_DOWNLOADED = {
    "proteins": "ogbn-proteins",
    "products": "ogbn-products",
    "arxiv": "ogbn-arxiv",
    "mag": "ogbn-mag",
    "papers100M-bin": "ogbn-papers100M",
    "ppassoc": "ogbl-ppa",
    "collab": "ogbl-collab",
    "citation-v2": "ogbl-citation2",
    "wikikg-v2": "ogbl-wikikg2",
    "ddi": "ogbl-ddi",
    "biokg": "ogbl-biokg",
    "vessel": "ogbl-vessel",
}
"""The directories in the archives that OGB offers."""

_TENSORS = {"node_feat": "x", "node_label": "y", "edge_feat": "edge_attr"}


def name_of(directory: str) -> str | None:
    """Return the data set that is in a directory of this name, None if it is none that is known."""
    plain = directory.removesuffix("_pyg").removesuffix("_dgl")
    named = _DOWNLOADED.get(plain, plain.replace("_", "-"))
    return named if named in KNOWN else None


def tensor_name(name: str) -> str:
    """Return what PyG calls a tensor of OGB."""
    return _TENSORS.get(name, name)
