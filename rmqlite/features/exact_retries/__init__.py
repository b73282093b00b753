"""Retries that wait exactly as long as a group's policy, or its consumer, says."""
