"""How many messages a second a group is handed at most, all its members together."""
