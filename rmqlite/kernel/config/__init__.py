"""What an operator sets: broker.conf, the shapes of tables, files that are watched."""
