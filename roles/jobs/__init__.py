"""Machines on which people run jobs: leases of GPUs, units that outlive logins, and folders for runs."""
