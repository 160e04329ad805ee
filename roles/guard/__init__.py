"""Gateways of tunnels, before they have one."""
