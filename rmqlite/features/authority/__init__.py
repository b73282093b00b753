"""Which of two brokers is the master, decided outside of both: by etcd, or by the archive."""
