"""What waits, and its delivery."""
