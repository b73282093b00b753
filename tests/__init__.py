"""The tests, in the order of the packages; tests/run.py runs them all."""
