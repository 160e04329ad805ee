"""The calls of AWS in the source of bedplate, as IAM actions by module, and AWS's own list of actions."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import boto3
from botocore.exceptions import UnknownServiceError

from bedplate.account.client import iam_action

ROOT = Path(__file__).parents[2]
_CALL = re.compile(r"client\.(call|find|items|pages|copy_object|read_object)\(")
_OBJECT_READERS = frozenset({"copy_object", "read_object"})
_OPERATION = 2  # its place among the arguments of a call: service, region, operation


@cache
def _session() -> boto3.session.Session:
    return boto3.session.Session("none", "none")


@cache
def _operations(service: str) -> dict[str, str]:
    """Return the operations of a service in the API, by their names in boto3; none for a word that is no service."""
    try:
        client = _session().client(service, region_name="us-east-1")
    except UnknownServiceError:
        return {}
    return dict(client.meta.method_to_api_mapping)


def actions_in(source: str) -> frozenset[str]:
    """Return the IAM actions of all calls in a module.

    The operation of a call may be a variable. Then each string of the module counts that is the name of an operation of
    that service; `f"get_{name}"` counts with each string of the module.
    """
    nodes = list(ast.walk(ast.parse(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    calls = [node for node in calls if (service := _text(node.args[:1])) and _operations(service)]
    stated = [node for node in calls if _text(node.args[_OPERATION:])]
    variable = {_text(node.args[:1]) for node in calls if node not in stated}
    pairs = {(_text(node.args[:1]), _text(node.args[_OPERATION:])) for node in stated}
    taken = {node.args[_OPERATION] for node in stated}
    texts = {_text([node]) for node in nodes if isinstance(node, ast.Constant) and node not in taken}
    prefixes = {_text(node.values[:1]) for node in nodes if isinstance(node, ast.JoinedStr)}
    names = {f"{prefix}{text}" for prefix in {"", *prefixes} for text in texts}
    found = {
        iam_action(service, operation)
        for service in {_text(node.args[:1]) for node in calls}
        for name, operation in _operations(service).items()
        if (service, name) in pairs or (service in variable and name in names)
    }
    reads = any(isinstance(node, ast.Attribute) and node.attr in _OBJECT_READERS for node in nodes)
    return frozenset(found | ({"s3:GetObject"} if reads else set()))


def _text(nodes: list[ast.expr]) -> str:
    """Return the first of some expressions if it is a string, else an empty string."""
    node = nodes[0] if nodes else None
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def client_actions() -> dict[str, frozenset[str]]:
    """Return the IAM actions of each module that calls AWS, by its path; machines' programs have none.

    The calls of the smoke test itself have the keys of an administrator: docs/smoke.md lists them.
    """
    paths = (
        path for folder in ("bedplate", "images", "roles", "stacks", "vpn") for path in (ROOT / folder).rglob("*.py")
    )
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}
    calling = {path: text for path, text in sources.items() if _CALL.search(text) and "/machine/" not in path}
    calling = {path: text for path, text in calling.items() if not path.endswith("/smoke.py")}
    return {path: actions for path, text in calling.items() if (actions := actions_in(text))}


@dataclass(frozen=True, slots=True)
class Authorization:
    """What AWS publishes of an action: access level, formats of the ARNs of its resources, other needed actions."""

    level: str
    arns: tuple[str, ...]
    needs: tuple[str, ...]


def read_authorizations(text: str) -> dict[str, Authorization]:
    """Return the actions of an extract of AWS's service authorization reference, by name."""
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {
        action: Authorization(level, tuple(arns.split()), tuple(needs.split())) for action, level, arns, needs in rows
    }


def matching(pattern: str, actions: Iterable[str]) -> Iterator[str]:
    """Yield the actions that an action of a policy stands for."""
    return (action for action in actions if fnmatchcase(action, pattern))
