"""Metrics of a machine that no exporter has, as a text file for the node exporter.

GPUs and who owns them, errors in the kernel log, mounts, EFA devices, and the age of audit, image and bundle.
"""
