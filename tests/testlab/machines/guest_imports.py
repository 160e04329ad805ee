"""Run a module with placeholders for packages: `python -m tests.testlab.machines.guest_imports MODULE`.

The kernel tests (kernel_pair.py, kernel_site.py) run on a Debian machine with the standard library and Jinja2. Modules
that they import also need the plan or cryptography, for functions that these tests do not call. Debian's cryptography,
which cloud-init brings, is too old for them.
"""

import runpy
import sys
from collections.abc import MutableSequence, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

_REPLACED = ("cryptography",)
_MISSING = ("bedplate", "pydantic", "roles", "segno", "tests.testlab.fleets", "tests.testlab.rehearsal")


class _Placeholder(MagicMock):
    """A mock that also supports `int | placeholder` in annotations."""

    def __ror__(self, other: object) -> "_Placeholder":
        return self


class _PlaceholderModule(ModuleType):
    __path__: MutableSequence[str] = []  # noqa: RUF012  never changed

    def __getattr__(self, name: str) -> object:
        """Return a placeholder for any attribute, except the import system's own."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _Placeholder(name=name)


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of these packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002  as above
    ) -> ModuleSpec | None:
        """Return a spec for a module of one of the packages."""
        is_listed = any(fullname == package or fullname.startswith(f"{package}.") for package in self._packages)
        return ModuleSpec(fullname, self, is_package=True) if is_listed else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module whose attributes are placeholders."""
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has no code."""


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder(_REPLACED))
    sys.meta_path.append(_Finder(_MISSING))
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
