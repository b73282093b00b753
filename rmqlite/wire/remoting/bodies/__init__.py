"""The dataclasses of the protocol's JSON bodies, by noun; shapes.py reads and writes them.

A field with a default may be absent, or null, in what is read; a value of None is not written.
"""
