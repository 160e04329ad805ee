"""The client of the Kubernetes API: the only package that imports lightkube."""
