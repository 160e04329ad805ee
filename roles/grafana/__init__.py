"""Grafana on the hub, behind nginx, with the dashboards of the fleet."""
