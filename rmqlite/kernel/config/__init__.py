"""What an operator sets: broker.conf, and the shapes of tables."""
