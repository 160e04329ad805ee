"""Where a run goes: a machine or a group by name, or else the smallest that has enough GPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from .hub import MISSING, WRONG, BpError

# What a machine of the cluster has for pods, after kubelet, its system and what runs on each node.
_FOR_PODS = 0.85
# CPUs and GiB of a pod without GPUs that asks for nothing.
_SMALL = {"cpus": 1, "memory": 2}


@dataclass(frozen=True)
class Place:
    """A machine, or a group of the cluster; `facts` are those of `fleet.json`."""

    name: str
    facts: Mapping[str, Any]
    in_cluster: bool = False

    @property
    def group(self) -> str:
        """The group, empty for a machine of a site."""
        return self.name if self.in_cluster else str(self.facts["group"] or "")

    def shares(self, run: Mapping[str, Any]) -> Mapping[str, int]:
        """Return the CPUs and GiB of a pod for what its run has not set: as large a part as that of the GPUs."""
        part = run["gpus"] / (self.facts["gpus"] or 1)
        of_machine = {"cpus": self.facts["cpus"], "memory": self.facts["memory_gib"]}
        wanted = {name: int(part * _FOR_PODS * (of_machine[name] or 0)) for name in _SMALL}
        return {name: run[name] or max(wanted[name], least) for name, least in _SMALL.items()}


def choose_place(fleet: Mapping[str, Any], name: str, group: str, gpus: int) -> Place:
    """Return the place of a run by `fleet.json`. Raises BpError if there is none, with the nearest right value."""
    places = [Place(key, facts) for key, facts in fleet["machines"].items() if facts["ssh"] and facts["jobs"]]
    groups = {key: facts for key, facts in fleet["groups"].items() if facts["jobs"]}
    if group and group not in groups:
        raise _unknown("group", group, groups)
    if group and groups[group]["kubernetes"] and not groups[group]["image"]:
        raise BpError(f"{group} has no image for runs", f"ask your operator for `jobs.images.{group}`", MISSING)
    places += [Place(key, facts, in_cluster=True) for key, facts in groups.items() if _takes_pods(facts)]
    places = [place for place in places if not group or place.group == group]
    if name:
        machines = [place for place in places if not place.in_cluster]
        places = [place for place in machines if name in {place.name, place.name.partition(".")[0]}]
        if len(places) != 1:
            raise _unknown("machine", name, [place.name for place in places or machines])
    # What is unknown is not enough. Of equal places, a machine that runs is first.
    ranked = sorted(places, key=lambda place: (place.facts["gpus"] or 0, place.in_cluster, place.facts["price"] or 0))
    if not ranked:
        raise BpError(f"no machine of {group or 'this fleet'} runs now", "select another --group or --on", MISSING)
    largest = ranked[-1].facts["gpus"] or 0
    if largest < gpus:
        raise BpError(f"no machine has {gpus} GPUs", f"at most {largest}, on {ranked[-1].name}", WRONG)
    return next(place for place in ranked if (place.facts["gpus"] or 0) >= gpus)


def _takes_pods(group: Mapping[str, Any]) -> bool:
    return bool(group["kubernetes"] and group["image"] and group["max"])


def _unknown(kind: str, name: str, names: Iterable[str]) -> BpError:
    near = " or ".join(get_close_matches(name, names, 1) or sorted(names)[:5])
    return BpError(f"no {kind} for runs is named {name}", f"write {near}" if near else "there is none", WRONG)
