"""One loader for the ranks of a host: a process that makes their batches, and what they ask it."""
