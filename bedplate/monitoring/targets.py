"""What the hub watches: the targets of Prometheus, and what the plan and EC2 expect, as metrics.

A machine that EC2 runs and that answers nothing is then an alert, not a gap.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TARGETS = "/var/lib/prometheus/targets"
"""The folder of the files with targets, one for each job."""
METRICS = "/var/lib/prometheus/node-exporter/bedplate-fleet.prom"
PORTS: Mapping[str, int] = {"node": 9100, "gpu": 9400}
"""The ports of exporters, by job."""
EXPECTED = ("bedplate_expected.*", "bedplate_machine_.*", "bedplate_fleet_.*")
"""Patterns of the names of these metrics."""
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that runs; `price` in US dollars per hour is None if it is unknown, and where nobody pays for hours."""

    name: str
    address: str
    place: str
    group: str
    role: str
    gpus: int = 0
    price: float | None = None
    market: str = "on-demand"

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its targets; Prometheus drops empty ones."""
        return {"instance": self.name, "place": self.place, "group": self.group, "role": self.role}


def machines_of(document: Facts, watched: Facts) -> tuple[Machine, ...]:
    """Return the machines of `fleet.json` and the permanent ones of the plan, by name.

    A permanent machine without an address in the plan has the one that EC2 knows, in `members` of the document.
    """
    permanent, members = watched["machines"], document.get("members", {})
    machines = {}
    for name, facts in permanent.items():
        if address := facts["address"] or members.get(name, facts)["address"]:
            machines[name] = Machine(name, address, facts["place"], "", facts["role"])
    for name, facts in document["machines"].items():
        role = permanent[name]["role"] if name in permanent else "workbench" if facts["ssh"] else "worker"
        price, market = facts["price"], facts.get("market", "on-demand")
        place = (facts["address"], facts["place"], facts["group"] or "", role)
        machines[name] = Machine(name, *place, facts["gpus"] or 0, price, market)
    return tuple(machines[name] for name in sorted(machines))


def watch_files(document: Facts, watched: Facts) -> Mapping[str, str]:
    """Return the texts of the files of targets and of what is expected, by path."""
    machines = machines_of(document, watched)
    lines = [
        f"{name}{{{','.join(f'{key}={json.dumps(text)}' for key, text in labels.items())}}} {value}\n"
        for name, labels, value in _expected(machines, document, watched)
    ]
    files = {METRICS: "".join(lines)}
    for job, port in PORTS.items():
        watched_by = [machine for machine in machines if machine.gpus or job != "gpu"]
        targets = [{"targets": [f"{machine.address}:{port}"], "labels": machine.labels} for machine in watched_by]
        files[f"{TARGETS}/{job}.json"] = json.dumps(targets)
    return files


def _expected(machines: tuple[Machine, ...], document: Facts, watched: Facts) -> Iterator[tuple[str, Facts, float]]:
    for machine in machines:
        where = {"machine": machine.name, "place": machine.place, "group": machine.group}
        yield "bedplate_expected", {**where, "role": machine.role}, 1
        if machine.gpus:
            yield "bedplate_expected_gpus", where, machine.gpus
        if machine.price is not None:
            yield "bedplate_machine_usd_per_hour", {**where, "market": machine.market}, machine.price
    least = Counter[tuple[str, str]]()
    for group in watched["groups"]:
        least[group["place"], group["group"]] += group["min"]
    for (place, name), count in least.items():
        yield "bedplate_expected_machines", {"place": place, "group": name}, count
    # At a site nobody asks EC2.
    if document["time"]:
        yield "bedplate_fleet_time_seconds", {}, document["time"]
        regions = {region for group in document["groups"].values() for region in group["regions"]}
        for place in sorted(regions | document["sources"].keys()):
            yield "bedplate_fleet_fault", {"place": place}, int(document["sources"].get(place) != document["time"])
