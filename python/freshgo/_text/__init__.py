"""Rows of text: CSV, TSV and lists of edges as they stand in files."""
