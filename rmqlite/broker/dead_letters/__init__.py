"""Views of failed messages: retries, dead letters, whole histories."""
