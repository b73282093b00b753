"""PushConsumer and PullConsumer, and the queues that they read."""
