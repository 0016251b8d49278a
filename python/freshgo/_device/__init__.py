"""Batches on their way to a device, and rows that stay there."""
