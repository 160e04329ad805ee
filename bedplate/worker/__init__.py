"""The worker agent: joins its machine to the cluster, reports its gate, and drains it before it ends.

It runs on nodes without bedplate, so its modules import nothing but the standard library and each other.
"""
