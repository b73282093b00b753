"""What belongs to the log beside its records: checksums, its true end, repaired places."""
