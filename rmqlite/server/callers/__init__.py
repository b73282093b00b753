"""What the broker notes of those who call: the audit log, and the limits of each."""
