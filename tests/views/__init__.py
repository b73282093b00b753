"""What an operator sees: figures and sentences."""
