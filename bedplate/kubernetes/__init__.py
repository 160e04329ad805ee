"""Kubernetes: the client of its API, what the cluster must have, and the members of its control plane."""
