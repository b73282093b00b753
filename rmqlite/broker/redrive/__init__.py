"""The broker's jobs that send dead letters again, each letter once."""
