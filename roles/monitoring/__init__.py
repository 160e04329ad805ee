"""The Prometheus node exporter, on the private address."""
