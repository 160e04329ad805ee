"""Compliance rules of nodes: pytest runs them, each file for a role, in `bedplate node audit` and on the machine."""
