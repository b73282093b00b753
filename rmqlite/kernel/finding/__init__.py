"""Finds records by key, id or filter, and how their waits ended."""
