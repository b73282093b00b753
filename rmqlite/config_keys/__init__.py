"""What config.py is made of: kinds of values, and the keys of RocketMQ that it refuses."""
