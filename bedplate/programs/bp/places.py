"""Where a run goes: a machine or a group by name, or else the smallest that has enough GPUs."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from .hub import WRONG, BpError

FOLDER = "/run/bedplate/run"
"""Where a pod has its agent."""
# What a machine of the cluster has for pods, after kubelet, its system and what runs on each node.
_FOR_PODS = 0.85
# CPUs and GiB of a pod without GPUs that asks for nothing.
_SMALL = {"cpus": 1, "memory": 2}
_REFERENCE = re.compile(r"[^\s@]{1,300}@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Place:
    """A machine for SSH, or nodes of the cluster by the labels of a selector; `facts` are those of `fleet.json`."""

    name: str
    facts: Mapping[str, Any]
    group: str
    """Empty for a machine of a site; for nodes there, the site."""
    selector: Mapping[str, str] = field(default_factory=dict)
    members: Sequence[str] = ()
    """The machines of a run on several, in their order; the first one is that of the name."""

    def shares(self, run: Mapping[str, Any]) -> Mapping[str, int]:
        """Return the CPUs and GiB of a pod for what its run has not set: as large a part as that of the GPUs."""
        of_machine = {"cpus": self.facts["cpus"], "memory": self.facts["memory_gib"]}
        if run["gpus"] and any(of_machine[name] is None and not run[name] for name in _SMALL):
            raise BpError(f"the CPUs and memory of {self.name} are unknown", "add --cpus N --memory N", WRONG)
        part = run["gpus"] / (self.facts["gpus"] or 1)
        wanted = {name: int(part * _FOR_PODS * (of_machine[name] or 0)) for name in _SMALL}
        return {name: run[name] or max(wanted[name], least) for name, least in _SMALL.items()}


def choose_place(fleet: Mapping[str, Any], name: str, group: str, wanted: Mapping[str, Any], image: str = "") -> Place:
    """Return the place of a run that wants `gpus` and `nodes`, by `fleet.json`.

    Raises BpError if there is none, with the nearest right value.
    """
    gpus, nodes = wanted["gpus"], wanted["nodes"]
    if image and not _REFERENCE.fullmatch(image):
        image = fleet["images"].get(image) or _refuse("image", image, fleet["images"], "repository@sha256:DIGEST")
    groups = {
        key: {**facts, "image": image or facts["image"]} for key, facts in fleet["groups"].items() if facts["jobs"]
    }
    if group and group not in groups:
        _refuse("group", group, groups)
    places = [*_places(fleet["machines"], groups)]
    if name:
        places = [_named(name, [place for place in places if place.name in fleet["machines"]])]
        if group and places[0].group != group:
            raise BpError(f"{places[0].name} is not in {group}", "leave --group out", WRONG)
    else:
        places = [place for place in places if not group or place.group == group]
        # A group may use any of its nodes. Of those of a site, CPUs and memory are unknown.
        known = {key for key, facts in groups.items() if group or not facts["site"]}
        places = [place for place in places if not place.selector or place.name in known]
    fitting = [place for place in places if (place.facts["image"] if place.selector else not image)]
    if not fitting:
        raise _nothing_fits(places, name or group or "this fleet", image, groups)
    if nodes > 1:
        fitting = [*_gangs(fitting, nodes, gpus)]
    # What is unknown is not enough. Of equal places, a machine that runs is first.
    fitting.sort(key=lambda place: (place.facts["gpus"] or 0, bool(place.selector), place.facts["price"] or 0))
    largest = fitting[-1].facts["gpus"] or 0
    if largest < gpus:
        raise BpError(f"no machine for this has {gpus} GPUs", f"at most {largest}, on {fitting[-1].name}", WRONG)
    return next(place for place in fitting if (place.facts["gpus"] or 0) >= gpus)


def _gangs(places: Sequence[Place], nodes: int, gpus: int) -> Sequence[Place]:
    """Return the groups of the cluster, and the machines of one place and group, that are so many with enough GPUs."""
    gangs, counts = list[Place](), dict[str, int]()
    machines = dict[tuple[str, str], list[Place]]()
    for place in sorted(places, key=lambda place: place.name):
        if (place.facts["gpus"] or 0) < gpus or "kubernetes.io/hostname" in place.selector:
            continue
        if place.selector:
            counts[place.name] = place.facts["max"]
            gangs += [place] if place.facts["max"] >= nodes else []
        else:
            machines.setdefault((place.group, place.facts["place"]), []).append(place)
    for (group, where), own in machines.items():
        counts[group or where] = max(len(own), counts.get(group or where, 0))
        if len(own) >= nodes:
            members = [place.name for place in own[:nodes]]
            gangs.append(Place(own[0].name, own[0].facts, group, members=members))
    if not gangs:
        what = f"no group has {nodes} machines with {gpus} GPUs for one run"
        most = max(counts, key=lambda name: counts[name], default="")
        fix = f"at most {counts[most]}, of {most}" if most else "write fewer --nodes or --gpus, and no --on"
        raise BpError(what, fix, WRONG)
    return gangs


def checkpoint_mount(fleet: Mapping[str, Any], place: Place) -> str:
    """Return where the machines of a place mount the store of checkpoints; empty without one."""
    site = place.facts["site"] if place.selector else "" if place.group else place.facts["place"]
    return str(fleet.get("checkpoints", {}).get(site, ""))


def wait_line(fleet: Mapping[str, Any], place: Place) -> str:
    """Return which machines of a group run, and what another one would be; empty for a machine."""
    if place.name not in fleet["groups"]:
        return ""
    running = sum(
        not facts["ssh"] and place.name in {facts["group"], facts["place"]} for facts in fleet["machines"].values()
    )
    count = running if fleet["time"] and not fleet["faults"] else "an unknown number"
    new = "; another one takes minutes: " if place.facts["rungs"] else ""
    return f"{count} of at most {place.facts['max']} machines run{new}{', else '.join(place.facts['rungs'])}"


def _places(machines: Mapping[str, Any], groups: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the machines for runs, and the groups of the cluster. A node has the image and taints of its group."""
    for name, facts in machines.items():
        if facts["ssh"] and facts["jobs"]:
            yield Place(name, facts, facts["group"] or "")
        elif facts["jobs"] and (group := facts["group"] or facts["place"]) in groups:
            yield Place(name, {**groups[group], **facts}, group, {"kubernetes.io/hostname": name})
    for name, facts in groups.items():
        if facts["kubernetes"] and facts["max"]:
            yield Place(name, facts, name, {"bedplate/site" if facts["site"] else "bedplate/group": name})


def _named(name: str, machines: Sequence[Place]) -> Place:
    places = [place for place in machines if name in {place.name, place.name.partition(".")[0]}]
    if len(places) > 1:
        names = " or ".join(sorted(place.name for place in places))
        raise BpError(f"several machines are named {name}", f"write {names}", WRONG)
    return places[0] if places else _refuse("machine", name, [place.name for place in machines])


def _nothing_fits(places: Sequence[Place], where: str, image: str, groups: Mapping[str, Any]) -> BpError:
    """Return why none of the selected places takes a run with this image, or without one."""
    if image and not any(place.selector for place in places):
        others = " or ".join(name for name, facts in groups.items() if facts["kubernetes"])
        fix = f"leave --image out, or write --group {others}" if others else "leave --image out"
        return BpError(f"{where} takes no image", fix, WRONG)
    if places:
        fix = f"add --image, or ask your operator for `jobs.images.{places[0].group}`"
        return BpError(f"{places[0].name} has no image for runs", fix)
    fix = "select another --group" if where in groups else "ask your operator which machines run"
    return BpError(f"no machine of {where} takes runs now", fix)


def _refuse(kind: str, name: str, names: Collection[str], *forms: str) -> Any:  # noqa: ANN401  nothing
    """Raise BpError for an unknown name, with the nearest ones."""
    near = " or ".join([*(get_close_matches(name, names, 1) or sorted(names)[:5]), *forms])
    raise BpError(f"no {kind} for runs is named {name}", f"write {near}" if near else "leave the option out", WRONG)
