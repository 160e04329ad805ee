"""The configuration run of a machine: applies the roles of its node document, runs the gate, and reports.

It runs on the machine itself, as `python3 -m bedplate.machine`, without a fleet file. The bootstrap script has fetched
the bundle that contains this package, and makes its calls to AWS.
"""
