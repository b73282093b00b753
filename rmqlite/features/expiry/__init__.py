"""Messages that expire: what a group was not handed in time is skipped for it, or a dead letter."""
