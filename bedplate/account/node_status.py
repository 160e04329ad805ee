"""The status that machines write about themselves: the last configuration run of each instance."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bedplate.account.client import AwsClient, NotThere, RegionResults, ask_regions
from bedplate.plan.fleet import FleetPlan

_FILE = "run.json"


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
    """Return the status of these instances of each region by id; those that have written none are left out."""

    def ask(region: str) -> Mapping[str, NodeStatus]:
        return dict(_of_region(client, region, plan.nodes_bucket(region).name, instances[region]))

    return ask_regions(instances, ask)


def _of_region(
    client: AwsClient, region: str, bucket: str, instances: Collection[str]
) -> Iterator[tuple[str, NodeStatus]]:
    try:
        pages = list(client.pages("s3", region, "list_objects_v2", Bucket=bucket, Prefix="status/"))
    except NotThere:
        return  # the region was deployed before it had this bucket
    for key in (entry["Key"] for page in pages for entry in page.get("Contents", ())):
        # A machine writes below `status/ID OF ITS ROLE:ID OF THE INSTANCE/`.
        _, owner, file = key.split("/")
        instance = owner.rpartition(":")[2]
        if file == _FILE and instance in instances:
            yield instance, _parse(client.call("s3", region, "get_object", Bucket=bucket, Key=key)["Body"].read())


def _parse(text: bytes) -> NodeStatus:
    """Return a status. Its text is written by a machine: of control characters and length only the start is shown."""
    try:
        document = json.loads(text)
        sentence = "".join(char if char.isprintable() else "?" for char in str(document["sentence"]))
        return NodeStatus(
            ok=document["ok"] is True,
            sentence=sentence,
            time=int(document["time"]),
            ready=document.get("ready") is True,
            bundle=str(document.get("bundle", "")),
            sequence=int(document.get("sequence", 0)),
        )
    except (ValueError, TypeError, KeyError):
        return NodeStatus(ok=False, sentence="invalid status", time=0)
