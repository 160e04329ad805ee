"""Tunnels between gateways, by strongSwan: what the plan and AWS say about them, as values and as the daemon's text.

Pure: opens no file but the templates beside it, asks nobody, starts nothing.
"""
