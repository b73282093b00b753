"""What waits for its time: delivery, listing, counting, and changes."""
