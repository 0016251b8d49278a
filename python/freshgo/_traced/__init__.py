"""Models as graphs of operations, recorded by torch.fx over a small random graph."""
