"""The demo of examples/run.py: orders on time, retried, done or dead."""
