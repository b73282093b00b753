"""What is not needed to move a message; each folder is one feature."""
