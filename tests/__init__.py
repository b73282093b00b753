"""The tests, in the order of the rooms; tests/run.py runs them all."""
