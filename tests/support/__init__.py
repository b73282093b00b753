"""What tests of several packages share: a clock to move by hand, stores, a whole broker."""
