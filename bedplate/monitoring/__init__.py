"""Metrics and alerts of the hub: the settings of its daemons, their targets, and rules. Texts only; nothing is read."""
