"""What people find on a machine that they log in to: tools, caches on local disk, room that is shared fairly."""
