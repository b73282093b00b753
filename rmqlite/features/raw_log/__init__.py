"""The log read as raw records, by jobs."""
