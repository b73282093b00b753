"""What can be asked of a running broker, by noun: plain async methods, for every face."""
