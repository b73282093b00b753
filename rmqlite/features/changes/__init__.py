"""Waiting messages: listed, counted, cancelled, moved."""
