"""A store without a broker: read, checked, repaired, moved."""
