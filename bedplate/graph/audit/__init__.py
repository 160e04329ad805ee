"""Checks of stack resources: resources in, faults out. Secret, unknown and missing values are not judged."""
