"""Accounts of the fleet's people on a node: users, groups, SSH keys, sudo rights and home folders."""
