"""Calls with many messages, each with its own outcome."""
