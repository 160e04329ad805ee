"""Gateways that laptops dial."""
