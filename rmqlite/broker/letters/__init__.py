"""Failed messages as people look at them: retries, dead letters, whole lives."""
