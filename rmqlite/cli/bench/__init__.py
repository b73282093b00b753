"""rmqlite bench: rates and lateness, measured on its own broker.

The broker is a process started here on a temporary store; the load comes from this process.
tests/benchmarks has the large scenarios, made of the same parts.
"""
