"""Fixtures of every resource kind in bedplate/rehearsal/kinds: valid inputs, changes, and invalid inputs.

A new kind needs a `KindFixture` in the module of its topic (links, machines, names, network, identity or storage); the
tests in test_kind_promises.py then run for it. Rows in the module refused_... are optional: inputs that AWS refuses.
"""
