"""The agent as a node gets it: one program of all its modules, each of which runs there under its own name."""

from importlib.resources import files

# Each after those that it imports.
_MODULES = ("frame", "whole_file", "lock", "journal", "agent")
_PACKAGE = "roles.engine.agent"
_PROGRAM = """\
import sys, types
for name, text in {modules!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


def agent_program() -> bytes:
    """Return the program, for a Python that has nothing of this project."""
    folder = files(_PACKAGE)
    texts = tuple((f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES)
    return _PROGRAM.format(modules=texts).encode()
