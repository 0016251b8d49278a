"""Where a loader's graph comes from: a store, or tensors in memory."""
