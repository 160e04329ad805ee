"""What EFS answers to a client that shows no identity, by a file system's policy: a deny wins, and silence is a no.

Reads the few words of policies that are used of file systems; any other is an error, never a guess. Source: IAM user
guide, "Policy evaluation logic"; EFS user guide, "Using IAM to control file system data access".
"""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from bedplate.plan.node import Mount
from roles.storage.attached import Attached, mounted
from roles.storage.tunnel import loopback, tunnel

_RIGHTS = ("ClientMount", "ClientWrite", "ClientRootAccess")


def way_of(mount: Mount) -> Mapping[str, str]:
    """Return the conditions under which EFS sees a mount as the role makes it: by TLS only where its tunnel stands."""
    at = mounted(mount)
    return {
        "aws:securetransport": str(_is_by_tls(mount, at)).lower(),
        # A name of the fleet's own zone leads to the addresses of mount targets.
        "elasticfilesystem:accessedviamounttarget": "true",
    }


def rights(policy: str, system: str, way: Mapping[str, str]) -> set[str]:
    """Return what a client without an identity may do."""
    told = json.loads(policy)["Statement"]
    return {right for right in _RIGHTS if _may(told, f"elasticfilesystem:{right}", system, way)}


def _is_by_tls(mount: Mount, at: Attached) -> bool:
    conf, unit = tunnel(mount)
    begins = loopback(mount.store)
    is_led = f"accept = {begins}:2049\nconnect = {mount.server}:2049\n" in conf.text and "client = yes" in conf.text
    return is_led and at.tunnel == unit.name and at.source.startswith(f"{begins}:")


def _may(told: list[dict[str, Any]], action: str, system: str, way: Mapping[str, str]) -> bool:
    effects = {one["Effect"] for one in told if _is_about(one, action, system) and _holds(one, way)}
    return effects == {"Allow"}


def _is_about(one: dict[str, Any], action: str, system: str) -> bool:
    is_anybody = one["Principal"] == "*" or "*" in _all(one["Principal"]["AWS"])
    actions = (each.lower() for each in _all(one["Action"]))
    is_action = any(fnmatchcase(action.lower(), each) for each in actions)
    return is_anybody and is_action and any(fnmatchcase(system, each) for each in _all(one["Resource"]))


def _holds(one: dict[str, Any], way: Mapping[str, str]) -> bool:
    tests = one.get("Condition", {})
    assert set(tests) <= {"Bool"}, f"{sorted(tests)}: this stand-in knows one operator"
    return all(way.get(key.lower()) in _all(value) for key, value in tests.get("Bool", {}).items())


def _all(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
