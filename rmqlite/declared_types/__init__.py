"""The values that a user hands over, against the types that the code declares for them."""
