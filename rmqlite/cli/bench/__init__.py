"""rmqlite bench: rates, lateness and memory, measured on its own broker.

The broker is a process started here on a temporary store, the load comes from other processes, and
each figure names the two moments between which it was measured.
"""
