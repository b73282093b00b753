"""Values that RocketMQ keeps at a name server."""
