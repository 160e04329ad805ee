"""The worker agent of Kubernetes; it runs on nodes without bedplate and imports the standard library only."""
