"""Workers that join the cluster, as AWS reports them: their instances, the keys that they publish, and the token."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.account.client import AwsClient, NotThere, RegionResults, TooLarge, ask_regions
from bedplate.account.machines import find_instances
from bedplate.foreign import parse_json
from bedplate.plan.cluster import JoiningPlan, pool_node_name
from bedplate.spec.sites import Use

_STATUS, _KEY_FILE = "status/", "join.json"
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
# An instance in these states may run a kubelet, now or after its next start.
_ALIVE = ["pending", "running", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Worker:
    """An instance of a pool, the addresses of its interfaces, and when it was started last, in Unix time."""

    name: str
    instance: str
    region: str
    addresses: frozenset[str]
    launched: float


def read_workers(client: AwsClient, plan: JoiningPlan) -> RegionResults[tuple[Worker, ...]]:
    """Return the workers that exist, by region."""
    return ask_regions(plan.buckets, lambda region: tuple(_of_region(client, plan, region)))


def _of_region(client: AwsClient, plan: JoiningPlan, region: str) -> Iterator[Worker]:
    conditions = {
        "tag:bedplate:fleet": plan.fleet,
        "tag:bedplate:use": [use.value for use in Use if use.is_worker],
        "instance-state-name": _ALIVE,
    }
    # Of two instances with the same eight digits the last here, which is the first that started, keeps the name.
    for instance in sorted(
        find_instances(client, region, conditions), key=lambda entry: entry["LaunchTime"], reverse=True
    ):
        yield _worker(instance, region)


def _worker(instance: Mapping[str, Any], region: str) -> Worker:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    name = pool_node_name(tags.get("bedplate:group", ""), instance["InstanceId"], region)
    interfaces = instance.get("NetworkInterfaces", ())
    addresses = {
        entry["PrivateIpAddress"] for interface in interfaces for entry in interface.get("PrivateIpAddresses", ())
    }
    if "PrivateIpAddress" in instance:
        addresses.add(instance["PrivateIpAddress"])
    return Worker(name, instance["InstanceId"], region, frozenset(addresses), instance["LaunchTime"].timestamp())


@dataclass
class PublishedKeys:
    """The keys that instances publish in the bucket of their region, below the id of their role and their own.

    IAM lets an instance write there only: no other machine can publish a key in its name.
    """

    client: AwsClient
    plan: JoiningPlan
    _role: str = ""
    """The id of the workers' role, as the objects have it."""

    def read(self, region: str, instances: Collection[str]) -> Mapping[str, str]:
        """Return the SHA-256 of the published key of these instances; those without a valid one are left out."""
        self._role = self._role or self._find_role(region, instances)
        keys = {instance: self._published(region, instance) for instance in instances} if self._role else {}
        if not any(keys.values()):
            self._role = ""  # the stacks may have made a new role
        return {instance: key for instance, key in keys.items() if key}

    def _find_role(self, region: str, instances: Collection[str]) -> str:
        place = {"Bucket": self.plan.buckets[region], "Prefix": _STATUS}
        for item in self.client.items("s3", region, "list_objects_v2", "Contents", **place):
            role, _, instance = item["Key"].removeprefix(_STATUS).partition("/")[0].partition(":")
            if instance in instances and item["Key"].endswith(f"/{_KEY_FILE}"):
                return str(role)
        return ""

    def _published(self, region: str, instance: str) -> str:
        """Return a published hash; empty for none, or an invalid one: a machine may write any text."""
        name = f"{_STATUS}{self._role}:{instance}/{_KEY_FILE}"
        try:
            key = parse_json(self.client.read_object(region, self.plan.buckets[region], name))["key"]
        except (ValueError, TypeError, KeyError, NotThere, TooLarge):
            return ""
        return key if isinstance(key, str) and _HASH.fullmatch(key) else ""


def put_token(client: AwsClient, plan: JoiningPlan, token: str) -> None:
    """Store the token of workers in the cloud, encrypted, where only their role may read it."""
    values = {"Name": plan.parameter, "Value": token, "Type": "SecureString", "KeyId": f"alias/{plan.fleet}-parameters"}
    client.call("ssm", plan.home, "put_parameter", **values, Overwrite=True)
