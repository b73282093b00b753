"""The ports of a broker: each converts its own protocol and calls the service."""
