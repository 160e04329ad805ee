"""What an operator may ask for: frozen models of the fleet file, one noun a module.

Nothing here reads a file, knows an AWS region or allots an address. A value that exists has the right shape and
the right syntax; whether it makes sense beside the others is asked in `bedplate.checks`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.spec.fleet import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> object:
    # The models take a quarter of a second to load; what else is here, syntax and words, is there at once.
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("bedplate.spec.fleet"), name)
