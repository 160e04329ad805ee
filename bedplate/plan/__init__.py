"""The plan: what a fleet file and its lock come to, as values. Pure: no file, no clock, no AWS.

Addresses are `ipaddress` types throughout; every block lies in the supernet, none overlaps another, and none that
the lock knows has moved.
"""
