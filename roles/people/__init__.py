"""Who has an account on a node: people and groups of the fleet file, their keys, their rights, their homes."""
