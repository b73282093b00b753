"""rmqlite.v1: values <-> bytes."""
