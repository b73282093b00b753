"""A store goes over to RocketMQ: its pending timers, for RocketMQ 5 and for 4.9."""
