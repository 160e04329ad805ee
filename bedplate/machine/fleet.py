"""`python3 -m bedplate.machine.fleet`: publish `fleet.json` on a hub in a region, from its plan and what EC2 has now.

Prometheus gets its targets of the same machines, and what is expected of them.

Laptops trust the host keys in it. A key is one that an operator has recorded, or that EC2 reads from the console, which
only root of the machine writes. A report of a machine is no proof: each user of a workbench can write it.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bedplate.account.client import RegionResults, ask_regions, open_client
from bedplate.account.machines import claims_of_zone, find_instances, group_and_region
from bedplate.account.session import console_key
from bedplate.errors import BedplateError, MachineError
from bedplate.files import read_json, write_whole
from bedplate.machine.state import State
from bedplate.monitoring.targets import watch_files
from bedplate.plan.cluster import pool_node_name
from bedplate.plan.hub import ALERTMANAGER_PORT, HUB_FLEET, HUB_HOST, PROMETHEUS_PORT
from bedplate.plan.nodes import NodePlan
from bedplate.plan.pools import FLEET, GROUP, MEMBER, USE
from bedplate.spec.sites import Use

Facts = Mapping[str, Any]
Machines = Mapping[str, Facts]
# A permanent machine: no job runs there.
_MEMBER = "member"
_UNKNOWN = dict.fromkeys(("gpus", "gpu", "gpu_memory_gib", "cpus", "memory_gib", "price"))


def publish(
    node: NodePlan, published: Facts, file: Path = Path(HUB_FLEET), watched: Facts = MappingProxyType({})
) -> Facts:
    """Write the document, and return it.

    A region that does not answer keeps its machines of before, and a fault says so.
    """
    now, former = int(time.time()), {"machines": {}, "members": {}, "sources": {}, **read_json(file)}
    regions = {region for group in published["groups"].values() for region in group["regions"]}
    regions |= {facts["place"] for facts in watched.get("machines", {}).values() if facts["address"] is None}
    known = {**former["machines"], **former["members"]}
    answers = _ask(node, published, sorted(regions), former["machines"])
    sources = {region: former["sources"][region] for region in answers.failures if region in former["sources"]}
    machines, faults = {**published["machines"]}, []
    for region, error in answers.failures.items():
        machines |= {name: facts for name, facts in known.items() if facts["place"] == region}
        age = "those of before" if region in sources else "unknown"
        faults.append(f"no answer from {region}, its machines are {age}: {error.what}")
    for region, found in answers.successes.items():
        machines |= found
        sources[region] = now
    members = {name: machines.pop(name) for name, facts in [*machines.items()] if _MEMBER in facts}
    now_known = {"machines": machines, "members": members, "sources": sources, "faults": faults}
    document = {**published, "time": now, **now_known}
    write_whole(file, json.dumps(document).encode())
    return document


def _ask(node: NodePlan, published: Facts, regions: list[str], former: Machines) -> RegionResults[Machines]:
    """Return the running machines of groups by region, each under the name that it has claimed in the zone."""
    client = open_client()
    keys = {facts.get("instance"): facts["host_key"] for facts in former.values()} | published["keys"]
    try:
        query = {"Name": f"/{node.fleet}/zone", "WithDecryption": True}
        zone = client.call("ssm", node.region, "get_parameter", **query)["Parameter"]["Value"]
        claims = tuple(claims_of_zone(client, node.region, zone, node.domain))
    except BedplateError as error:
        return RegionResults({}, dict.fromkeys(regions, error))
    # A machine can write the record of a name of another group: that name is not its own.
    names = {(claim.instance, *group_and_region(claim.name)): claim.name for claim in claims}
    open_groups = {name for name, facts in published["groups"].items() if facts["jobs"]}

    def ask(region: str) -> Machines:
        conditions = {f"tag:{FLEET}": node.fleet, "instance-state-name": "running"}
        machines = dict[str, Facts]()
        for instance in find_instances(client, region, conditions):
            tags, ident = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}, instance["InstanceId"]
            if tags.get(USE) not in [*Use]:
                if MEMBER in tags:
                    machines[tags[MEMBER]] = {_MEMBER: True, "place": region, "address": instance["PrivateIpAddress"]}
                continue
            group, is_ssh = tags[GROUP], Use(tags[USE]).is_ssh
            key = keys.get(ident) or (console_key(client, region, ident) if is_ssh else None)
            hardware = published["types"].get(instance["InstanceType"], _UNKNOWN)
            facts = {"place": region, "group": group, "address": instance["PrivateIpAddress"], "host_key": key}
            facts |= {"ssh": is_ssh, "jobs": group in open_groups, "instance": ident}
            facts |= {"since": int(instance["LaunchTime"].timestamp())}
            facts |= {"market": instance.get("InstanceLifecycle", "on-demand")}
            machines[names.get((ident, group, region)) or pool_node_name(group, ident, region)] = {**facts, **hardware}
        return machines

    return ask_regions(regions, ask)


def report_watch(node: NodePlan, ports: Iterable[int] = (PROMETHEUS_PORT, ALERTMANAGER_PORT)) -> None:
    """Tell CloudWatch that this hub watches the fleet: its alarm is the only one outside of our own programs."""
    dimensions = [{"Name": "AutoScalingGroupName", "Value": f"{node.fleet}-{HUB_HOST}"}]
    data = [{"MetricName": "Serving", "Dimensions": dimensions, "Value": 1}]
    try:
        for port in ports:
            with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as daemon:
                daemon.request("GET", "/-/ready")
                if daemon.getresponse().status != HTTPStatus.OK:
                    raise MachineError(f"127.0.0.1:{port} is not ready", fix="see its journal")
        query = {"Namespace": f"{node.fleet}/nodes", "MetricData": data}
        open_client().call("cloudwatch", node.region, "put_metric_data", **query)
    except (OSError, HTTPException, BedplateError) as error:
        sys.stderr.write(f"CloudWatch does not hear that the fleet is watched: {error}\n")


if __name__ == "__main__":
    this = State().node()
    if this.hub:
        watched = this.hub.watched
        for path, text in watch_files(publish(this, this.hub.published, watched=watched), watched).items():
            write_whole(Path(path), text.encode())
        report_watch(this)
