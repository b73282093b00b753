"""The broker's jobs that send dead letters again, each dead letter once."""
