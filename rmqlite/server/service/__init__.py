"""Everything a caller can ask a running broker, by noun: plain async methods for every protocol."""
