"""A program that a role ships for a node, which has no package there, as a module of this process."""

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

_ROLES = Path(__file__).parents[2] / "roles"


def loaded(program: str) -> ModuleType:
    """Return a program by its way from `roles`, read anew each time."""
    path = _ROLES / program
    loader = importlib.machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
