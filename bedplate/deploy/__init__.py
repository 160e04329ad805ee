"""Deployment by Pulumi's engine: the stacks of a fleet folder, in order, regions in parallel."""
