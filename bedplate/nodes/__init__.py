"""The fleet's machines over SSH: selection, host keys, ssh configuration, applies and compliance checks.

Independent of what roles do; makes no AWS call.
"""
