"""What is asked of the broker and what it answers, as plain values, by noun."""
