"""rmqlite bench: how fast, how late, how big; measured on a broker of its own.

The broker is a process started here on a temporary store, the load comes from other
processes, and a figure says what was measured between which two moments.
"""
