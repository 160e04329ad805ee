"""A Pulumi program of the user's own, as a function that can be run again and again in this process."""

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

from bedplate.errors import InputError
from bedplate.rehearsal.providers import DefaultProvider
from bedplate.rehearsal.stack import Stack


def program_stack(file: Path, region: str) -> Stack:
    """Return the stack of a program, named after its file; InputError when there is no such file."""
    if not file.is_file():
        raise InputError(f"there is no program {file}", fix="give the path of a Python file")
    program = partial(_run, file.resolve())
    return Stack(file.stem, file.stem, program, default_provider=DefaultProvider(region))


def _run(file: Path) -> None:
    """Run a program as the engine would: from its folder, its own modules imported anew, its prints on stderr."""
    with _at_home(file.parent), redirect_stdout(sys.stderr):
        try:
            runpy.run_path(str(file), run_name="__main__")
        except SystemExit as end:
            if end.code:
                ended = RuntimeError(f"the program ended itself with {end.code}")
                raise ended.with_traceback(end.__traceback__) from None


@contextmanager
def _at_home(folder: Path) -> Iterator[None]:
    before, path, known = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in sys.modules.keys() - known:
            if _lies_in(name, folder):
                del sys.modules[name]


def _lies_in(module: str, folder: Path) -> bool:
    file = getattr(sys.modules[module], "__file__", None) or ""
    return Path(file).is_relative_to(folder) and "site-packages" not in file
