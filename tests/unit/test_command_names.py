"""Every command of bedplate that its texts name exists, with its options."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.cli.app import COMMANDS, GROUPS, command_path, make_app

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    file for name in ("bedplate", "roles", "stacks", "vpn", "images") for file in (ROOT / name).rglob("*.py")
)
WORDS = "|".join(command.name for command in COMMANDS)
NAMED = re.compile(rf"`(?:bedplate ([^`]+)|((?:{'|'.join(GROUPS)}) [^`]+|(?:{WORDS}) --[^`]+))`")


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module; a value that is not known is NAME."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else " NAME " for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def unknown_words(command: str) -> list[str]:
    """Return the words of a command that the command line would refuse: its name, and its options."""
    words = [word for word in shlex.split(command) if word not in ("...", "NAME")]
    path = command_path(words)
    found: Any = make_app(words)
    for name in path:
        found = found.commands[name]
    if not path or (hasattr(found, "commands") and words[len(path) :]):
        return words[: len(path) + 1]
    options = {option: param for param in found.params for option in param.opts} | {"--help": None}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in options]


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_commands_in_a_text_exist(file: Path) -> None:
    """A fix must work when it is pasted; words in braces depend on the input."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    commands = [command for text in texts(tree) for pair in NAMED.findall(text) for command in pair if command]
    assert {command: words for command in commands if (words := unknown_words(command))} == {}


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("up --stack us-west-2", []),
        ("up --stacks x", ["--stacks"]),
        ("deploy", ["deploy"]),
        ("node trusts x", ["node", "trusts"]),
    ],
)
def test_a_wrong_command_is_found(command: str, unknown: list[str]) -> None:
    """A misspelt command, group or option."""
    assert unknown_words(command) == unknown
