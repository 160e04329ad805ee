"""The health gate of a machine; it runs on nodes without bedplate and imports the standard library only."""
