"""Values of options that the command line lists too. This module imports nothing, so that ``--help`` is quick."""

REDUCTIONS = ("mean", "sum", "gcn")
"""How :func:`freshgo.propagate` aggregates."""

FORMS = ("float16", "bfloat16", "int8", "int8-per-row", "int8-per-column")
"""How floats can be stored in fewer bytes."""

ORDERS = ("hot", "community", "hot+community")
"""Orders of rows that :func:`freshgo.relayout` makes."""

METRICS = ("degree", "in-degree", "random", "presc", "expected", "oracle")
"""How hot a node is."""
