"""Ordered consumers: which member of a group may read a queue alone."""
