"""What stands beside the daemons of a gateway."""
