"""The engine of `bedplate node apply`: pyinfra over one SSH connection a node, to an agent that runs there as root.

It knows nothing of what a role does. It runs in a separate process, because gevent patches the sockets of its process.
"""
