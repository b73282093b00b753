"""Random operations against a plain model."""
