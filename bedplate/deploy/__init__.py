"""Deployment to AWS by Pulumi's engine: the stacks of a fleet folder, in order, regions in parallel.

`engine` is the client of the `pulumi` command, `progress` reduces its events to a state, `run` runs the steps.
"""
