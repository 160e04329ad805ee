"""Tokens of the cluster for people who log in to a member of the control plane."""
