"""What a node tells of itself to whoever watches the fleet, on its private address alone."""
