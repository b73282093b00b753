"""Timers that move from RocketMQ 5 to us, and from us to RocketMQ 5 and 4.9."""
