"""The health gate of a machine: does its hardware match the plan, and does it work? Standard library only.

It runs on nodes without bedplate, so its modules import nothing but the standard library and each other.
"""
