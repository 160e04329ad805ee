"""Workbenches: tools for users, caches on local disks, and /scratch with a quota for each person."""
