"""Values of options that have a fixed set of them, as types for editors and, at run time, as tuples.

:func:`freshgo._args.checks.choice` takes either. The command line lists some of them: this module imports nothing but
``typing``, so that ``--help`` is quick.
"""

from __future__ import annotations

from typing import Literal, get_args

EdgeIndexForm = Literal["tensor", "EdgeIndex"]
Engine = Literal["auto", "io_uring", "pread", "buffered"]
Exchange = Literal["auto", "all_to_all", "rounds"]
FeatureDType = Literal["float32", "stored"]
Form = Literal["float16", "bfloat16", "int8", "int8-per-row", "int8-per-column"]
"""How floats can be stored in fewer bytes."""
Kept = Literal["rows", "aggregates"]
"""The kind of rows that a :class:`freshgo.History` keeps."""
Metric = Literal["degree", "in-degree", "random", "presc", "expected", "oracle"]
"""How hot a node is."""
Missing = Literal["error", "add", "drop"]
"""What becomes of an edge of a table whose end is no node."""
NegativeMode = Literal["binary", "triplet"]
"""How :class:`freshgo.LinkLoader` draws negatives."""
OnlineName = Literal["lru", "clock", "sieve", "s3fifo", "match"]
"""Caches that decide batch by batch."""
Order = Literal["hot", "community", "hot+community"]
"""Orders of rows that :func:`freshgo.relayout` makes."""
PolicyName = Literal["auto", "belady", "none", Metric, OnlineName]
Pruning = Literal["performance", "gradient", "gas"]
"""Which rows a :class:`freshgo.History` keeps."""
Reduction = Literal["mean", "sum", "gcn"]
"""How :func:`freshgo.propagate` aggregates."""
SourceName = Literal[
    "ogb",
    "mag240m",
    "igb",
    "graphbolt",
    "npz",
    "mtx",
    "graphml",
    "gml",
    "gexf",
    "pajek",
    "npy",
    "pyg",
    "networkx",
    "matrix",
    "edges",
    "csr",
    "csc",
    "coo",
    "tensors",
    "ogbn-proteins",
    "ogbn-products",
    "ogbn-arxiv",
    "ogbn-mag",
    "ogbn-papers100M",
    "ogbl-ppa",
    "ogbl-collab",
    "ogbl-citation2",
    "ogbl-wikikg2",
    "ogbl-ddi",
    "ogbl-biokg",
    "ogbl-vessel",
]
"""What :func:`freshgo.convert` reads."""
Subgraph = Literal["directional", "bidirectional", "induced"]
"""In the order of the library's numbers."""
TableFormat = Literal["parquet", "csv", "json", "arrow", "orc", "sqlite", "duckdb"]
Temporal = Literal["uniform", "last"]
"""How neighbours are drawn in time."""
Transfer = Literal[
    "auto",
    "random",
    "page-once",
    "scan",
    "pack",
    "forward",
    "page-once+forward",
    "scan+forward",
    "pack+forward",
    "pack+forward+ahead",
]
Uneven = Literal["pad", "drop", "join"]
"""In the order of the library's numbers."""

FORMS: tuple[Form, ...] = get_args(Form)
METRICS: tuple[Metric, ...] = get_args(Metric)
ORDERS: tuple[Order, ...] = get_args(Order)
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
