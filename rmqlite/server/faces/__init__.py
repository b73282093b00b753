"""The ports of a broker: each converts its own protocol and asks at the front."""
