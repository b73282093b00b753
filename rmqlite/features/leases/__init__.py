"""Messages that are leased to clients one by one, instead of queues to members."""
