"""The HTTP port that Prometheus and probes read."""
