"""The models of the fleet file: frozen pydantic models, one module per group of sections.

Nothing here reads a file, knows an AWS region or allocates an address. A model ensures types and syntax of its values;
`bedplate.checks` compares values with each other and with facts about AWS.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.spec.fleet import Fleet

__all__ = ["Fleet"]


def __getattr__(name: str) -> object:
    # Importing the models takes a quarter of a second; the other modules of this package do not need them.
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("bedplate.spec.fleet"), name)
