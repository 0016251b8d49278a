"""Rows of node tensors that are divided among ranks: the parts, and the exchange of rows between them."""
