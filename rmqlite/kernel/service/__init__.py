"""What can be asked of a broker: the one door, with rights and waits."""
