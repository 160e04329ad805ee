"""The status that machines write about themselves: the last configuration run of each instance."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, NotThere, RegionResults, ask_regions
from bedplate.plan.fleet import FleetPlan


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The last configuration run of an instance; `time` is Unix time, `ready`: it has answered its lifecycle hook."""

    ok: bool
    sentence: str
    time: int
    ready: bool = False
    bundle: str = ""
    sequence: int = 0


def read_node_statuses(
    client: AwsClient, plan: FleetPlan, instances: Mapping[str, Collection[str]]
) -> RegionResults[Mapping[str, NodeStatus]]:
    """Return the status of these instances of each region by id; those without a valid one are left out."""

    def ask(region: str) -> Mapping[str, NodeStatus]:
        try:
            documents = RegionStore(client, plan, region).statuses(instances[region])
        except NotThere:
            return {}  # the region was deployed before it had the bucket
        statuses = {instance: _parse(document) for instance, document in documents.items() if document}
        return {instance: status for instance, status in statuses.items() if status}

    return ask_regions(instances, ask)


def _parse(document: Mapping[str, Any]) -> NodeStatus | None:
    """Return a status; None for an invalid one: a machine may write any text, also control characters."""
    try:
        return NodeStatus(
            ok=document["ok"] is True,
            sentence="".join(char if char.isprintable() else "?" for char in str(document["sentence"])),
            time=int(document["time"]),
            ready=document.get("ready") is True,
            bundle=str(document.get("bundle", "")),
            sequence=int(document.get("sequence", 0)),
        )
    except (ValueError, TypeError, KeyError):
        return None
