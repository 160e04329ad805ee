"""What every node is before it serves anything: a name, the time, packages that are trusted, limits."""
