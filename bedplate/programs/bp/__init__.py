"""The command `bp` of people: their runs, and the pages of the hub, from their laptop. It runs on Python 3.9.

Invitations have it as one file (`bedplate.nodes.invitation`), with `bp.json` beside it.
"""
