"""Where a run goes: a machine by its name or its group, or else the smallest that has enough GPUs."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from .hub import MISSING, WRONG, BpError


def choose_machine(fleet: Mapping[str, Any], name: str, group: str, gpus: int) -> str:
    """Return the machine for a run by `fleet.json`. Raises BpError if there is none, with the nearest right value."""
    machines = {key: facts for key, facts in fleet["machines"].items() if facts["ssh"] and facts["jobs"]}
    if group:
        if group not in fleet["groups"]:
            raise _unknown("group", group, fleet["groups"])
        if fleet["groups"][group]["kubernetes"]:
            raise BpError(
                f"{group} is in the cluster: runs there are not in this version", "select --on MACHINE", WRONG
            )
        machines = {key: facts for key, facts in machines.items() if facts["group"] == group}
    if name:
        named = {key: facts for key, facts in machines.items() if name in {key, key.partition(".")[0]}}
        if len(named) != 1:
            raise _unknown("machine", name, named or machines)
        machines = named
    # What is unknown is not enough.
    ranked = sorted((facts["gpus"] or 0, facts["price"] or 0.0, str(key)) for key, facts in machines.items())
    if not ranked:
        raise BpError(f"no machine of {group or 'this fleet'} runs now", "select another --group or --on", MISSING)
    if ranked[-1][0] < gpus:
        raise BpError(f"no machine has {gpus} GPUs", f"at most {ranked[-1][0]}, on {ranked[-1][2]}", WRONG)
    return next(machine for count, _, machine in ranked if count >= gpus)


def _unknown(kind: str, name: str, names: Iterable[str]) -> BpError:
    near = " or ".join(get_close_matches(name, names, 1) or sorted(names)[:5])
    return BpError(f"no {kind} for runs is named {name}", f"write {near}" if near else "there is none", WRONG)
