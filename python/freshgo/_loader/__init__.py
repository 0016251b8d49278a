"""What ``Loader`` and ``LinkLoader`` are made of: their options against a graph, their epochs, their batches."""
