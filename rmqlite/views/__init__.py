"""What an operator sees, computed once from the broker's answers as plain values.

The command line, the full screen and the web page show the same figures and sentences; each only
lays them out.
"""
