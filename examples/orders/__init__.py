"""The demo: orders on time, retried, done or dead.  Started by examples/run.py."""
