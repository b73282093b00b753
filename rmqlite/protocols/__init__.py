"""The bytes and the port of each protocol."""
