"""What an operator may ask for: frozen models of the fleet file, one noun a module.

Nothing here reads a file, knows an AWS region or allots an address. A value that exists has the right shape and
the right syntax; whether it makes sense beside the others is asked in `bedplate.checks`.
"""

from bedplate.spec.fleet import Fleet

__all__ = ["Fleet"]
