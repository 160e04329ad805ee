"""Prometheus and Alertmanager of the distribution on the hub: metrics of the fleet, rules, and alerts."""
