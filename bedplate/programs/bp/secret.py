"""`bp secret`: values that runs get by name, which the person has on machines and in the cluster."""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from getpass import getpass
from typing import Any

from .hub import WRONG, BpError, Hub, ask_all

NAME = "[A-Za-z][A-Za-z0-9_-]{0,62}"
# Bytes: a variable of a process has at most 128 KiB, and the Secret of a run 256 KiB.
_CLUSTER, _LARGEST = "cluster", 32 << 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp secret`."""
    parser.add_argument("verb", choices=["set", "remove", "list"], help="bp asks for a value, or reads it from stdin")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="one JSON document, for programs")


def change_secrets(hub: Hub, verb: str, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Set, remove or list secrets; return the `lines` of each place, or its `error`. Raises BpError."""
    if not re.fullmatch("" if verb == "list" else NAME, " ".join(names)):
        form = "no name" if verb == "list" else "one name of letters, digits, `_` and `-`"
        raise BpError(f"`bp secret {verb}` takes {form}", "bp asks for a value, or reads it from stdin", WRONG)
    changes = {name: _read_value(name) if verb == "set" else "" for name in names}

    def exchange(place: str) -> Mapping[str, Any]:
        found = _exchange(hub, place, changes)
        if verb == "list":
            return {"lines": [f"{name}  since {at}" for name, (at, _) in found.items()]}
        state = "set" if verb == "set" else "removed" if names[0] in found else "not there"
        return {"lines": [f"{names[0]} is {state}"]}

    fleet = hub.fleet()
    machines = {name: facts["place"] for name, facts in fleet["machines"].items() if facts["ssh"] and facts["jobs"]}
    if not machines and not hub.settings.cluster:
        raise BpError("no machine for runs is there now", "try again later, or ask your operator")
    answers = ask_all([*([_CLUSTER] if hub.settings.cluster else ()), *machines], exchange)
    groups = (facts for facts in fleet["groups"].values() if facts["jobs"] and not facts["kubernetes"])
    # Their homes may have secrets.
    silent = {region for facts in groups for region in facts["regions"]} - {*machines.values()}
    return {**answers, **{region: {"error": "no machine runs there now"} for region in sorted(silent)}}


def read_secrets(hub: Hub, machine: str, words: Sequence[str]) -> Mapping[str, str]:
    """Return the variables of a run for words NAME[=VARIABLE]; without a machine, in the cluster. Raises BpError."""
    place, variables = machine or _CLUSTER, dict[str, str]()
    answer = ask_all([place], lambda _: {"secrets": _exchange(hub, place, {})})[place]
    if "error" in answer:
        raise BpError(f"{place} does not give secrets: {answer['error']}", "`bp doctor` looks for the cause")
    for name, _, variable in (word.partition("=") for word in words):
        if name not in answer["secrets"]:
            near = "".join(f"write {other}, or " for other in get_close_matches(name, answer["secrets"], 1))
            raise BpError(f"{place} has no secret {name}", f"{near}run `bp secret set {name}`", WRONG)
        variables[variable or name.replace("-", "_")] = answer["secrets"][name][1].rstrip("\r\n")
    return variables


def _read_value(name: str) -> str:
    """Return the value of a secret from stdin; a terminal does not show it. Raises BpError."""
    try:
        value = getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.buffer.read(_LARGEST + 1).decode()
    except (EOFError, UnicodeDecodeError):
        value = ""
    if not value.strip() or "\0" in value or len(value.encode(errors="replace")) > _LARGEST:
        what = f"the value is empty, no text, or larger than {_LARGEST >> 10} KiB"
        raise BpError(what, "encode bytes by base64; a large file belongs into your home, with mode 600", WRONG)
    return value


def _exchange(hub: Hub, place: str, changes: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Return time and value of each secret before these changes; an empty value removes one. Raises BpError."""
    if place == _CLUSTER:
        # Slow to import, and of no use on machines.
        from .cluster import api_of  # noqa: PLC0415

        return api_of(hub.settings).secrets(changes)
    # Shells print lines of their own before.
    return dict(json.loads(hub.ask(place, "bedplate-agent secrets", json.dumps(changes)).splitlines()[-1]))
