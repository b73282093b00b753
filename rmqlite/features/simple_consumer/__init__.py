"""Messages that a client of rmqlite asks for, one by one: leases as calls of rmqlite.v1."""
