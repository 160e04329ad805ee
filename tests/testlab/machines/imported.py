"""Imports every module of a project, and compiles its other Python programs; prints what fails, as JSON.

Arguments: the project's folder, then its packages. It runs under another Python than the tests.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# pyinfra and Pulumi start them: they work when they are imported.
_STARTED = frozenset({"bedplate.__main__", "roles.deploy", "roles.inventory"})
_PROGRAM, _OF_TEMPLATES = b"#!/usr/bin/python3", (b"{%", b"{{ ")


def failures(project: Path, packages: Sequence[str]) -> dict[str, str]:
    """Return the error of each module and program that this Python does not load, by name; templates are left out."""
    found = {}
    for name in sorted(module for package in packages for module in _modules(project, package)):
        try:
            if name in _STARTED:
                _compile(project / f"{name.replace('.', '/')}.py")
            else:
                importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  of any kind
            found[name] = repr(error)
    for path in _programs(project, packages):
        try:
            _compile(path)
        except SyntaxError as error:
            found[str(path.relative_to(project))] = repr(error)
    return found


def _modules(project: Path, package: str) -> Iterator[str]:
    yield package
    yield from (info.name for info in pkgutil.walk_packages([str(project / package)], f"{package}.", lambda _: None))


def _programs(project: Path, packages: Sequence[str]) -> Iterator[Path]:
    files = (path for package in packages for path in (project / package).rglob("*") if path.is_file())
    for path in files:
        text = b"" if path.suffix else path.read_bytes()
        if text.startswith(_PROGRAM) and not any(mark in text for mark in _OF_TEMPLATES):
            yield path


def _compile(path: Path) -> None:
    compile(path.read_bytes(), path, "exec")


if __name__ == "__main__":
    root, *names = sys.argv[1:]
    sys.path.insert(0, root)
    sys.stdout.write(json.dumps({"version": sys.version_info[:2], "failures": failures(Path(root), names)}))
