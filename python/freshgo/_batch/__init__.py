"""What is in a batch: edges, blocks and levels."""
