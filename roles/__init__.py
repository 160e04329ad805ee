"""The roles of a node: packages, files and services that pyinfra configures on cloud machines and machines of sites.

A role takes values of the plan and never reads the fleet file. The files that it writes to a node are in its folder.
"""
