"""How pyinfra reaches and works on the fleet's nodes: one SSH connection a node, with an agent at its far end.

Nothing here knows what a role does. Runs in a process of its own, for gevent changes the sockets of whoever loads it.
"""
