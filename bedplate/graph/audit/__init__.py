"""Checks of stack resources: resources in, faults out.

A value that the graph does not show, because it is secret, unknown or missing, is not judged.
"""
