"""RocketMQ's key index: from the hash of a key to places in the log."""
