"""The engine of `bedplate node apply`: pyinfra over one SSH connection a node, to an agent that runs as root."""
