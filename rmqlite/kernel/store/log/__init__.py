"""The log's checksums, its true end and its repaired places."""
