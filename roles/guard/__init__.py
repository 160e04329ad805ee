"""Tunnel gateways: strongSwan, FRR and the rules that prevent traffic outside the tunnels."""
