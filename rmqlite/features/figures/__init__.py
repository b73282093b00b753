"""What the broker does: rates of topics, groups and timers, and the disk's use."""
