"""What tests of several rooms share: a clock to move by hand, stores, a whole broker."""
