"""What stands on a gateway beside its daemons: it takes in what the operator's machine sends, and says how things are.

It runs there as it lies here, by the system's Python and nothing else, as `bedplate-vpn`; hence its imports by dots.
Never signs anything, and never needs the network.
"""
