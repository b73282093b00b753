"""RocketMQ's clients at two brokers of which one takes the other's place."""
