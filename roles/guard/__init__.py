"""Gateways of sites, before they have a tunnel."""
