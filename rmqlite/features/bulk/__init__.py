"""Bulk calls, and the journal of jobs that survives crashes; redrive jobs use it too."""
