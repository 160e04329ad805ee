"""The fleet folder: an operator's own folder with the fleet file, its lock, the Pulumi project and a CI workflow."""
