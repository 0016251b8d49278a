"""Graphs as other programs keep them: what each of them is, in a file of its own, and how it is known."""
