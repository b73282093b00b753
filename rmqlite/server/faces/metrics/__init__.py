"""What Prometheus and probes read over HTTP."""
