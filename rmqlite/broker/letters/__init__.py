"""Views of failed messages: retries, dead letters, whole lives."""
