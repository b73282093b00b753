"""Joins broker and wire; the only room that waits."""
