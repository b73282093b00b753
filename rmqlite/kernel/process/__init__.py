"""The process: its loops, the group commit, deliveries, upkeep."""
