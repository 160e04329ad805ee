"""The bundles of nodes in an account: objects in the bucket of each region, and the SSM parameter of each ring."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.account.client import AwsClient, TooLarge
from bedplate.bundle import (
    NodeStatus,
    RingState,
    UseReport,
    hash_of,
    read_node_status,
    read_ring_state,
    read_use_report,
)
from bedplate.errors import PartialError
from bedplate.foreign import LARGEST
from bedplate.plan.cluster import ETCD_QUOTA
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.groups import Ring

_LARGEST_BLOB = 1 << 29
# etcd may exceed its quota a little before it refuses writes.
_LARGEST_SNAPSHOT = 2 * ETCD_QUOTA


@dataclass(frozen=True, slots=True)
class RegionStore:
    """The bucket and the ring parameters of one region. All methods raise like `AwsClient.call`."""

    client: AwsClient
    plan: FleetPlan
    region: str

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self.plan.nodes_bucket(self.region).name

    def has(self, key: str) -> bool:
        """Return whether the bucket has an object."""
        return self.client.find("s3", self.region, "head_object", Bucket=self.bucket, Key=key) is not None

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises PartialError if the region's stack has not created the bucket."""
        if self.client.find("s3", self.region, "put_object", Bucket=self.bucket, Key=key, Body=data) is None:
            raise PartialError(f"no bucket {self.bucket}", fix=f"deploy it: `bedplate up --stack {self.region}`")

    def delete(self, key: str) -> None:
        """Delete an object; a missing object is ignored."""
        self.client.call("s3", self.region, "delete_object", Bucket=self.bucket, Key=key)

    def get(self, key: str, largest: int = LARGEST) -> bytes:
        """Return an object. Raises NotThere, and TooLarge."""
        return self.client.read_object(self.region, self.bucket, key, largest)

    def save(self, key: str, file: Path) -> None:
        """Write a snapshot of etcd to a file. Raises NotThere, and TooLarge."""
        with file.open("wb") as stream:
            self.client.copy_object(self.region, {"Bucket": self.bucket, "Key": key}, stream, _LARGEST_SNAPSHOT)

    def blob(self, name: str) -> bytes:
        """Return an archive. Raises PartialError if it is not what its name says."""
        data = self.get(f"blobs/{name}", _LARGEST_BLOB)
        if hash_of(data) != name:
            raise PartialError(f"damaged object blobs/{name} in {self.bucket}", fix="delete it, then push again")
        return data

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys of the objects with a prefix."""
        query = {"Bucket": self.bucket, "Prefix": prefix}
        yield from (
            item["Key"] for item in self.client.items("s3", self.region, "list_objects_v2", "Contents", **query)
        )

    def ring(self, ring: Ring) -> RingState | None:
        """Return the state of a ring; None before its first bundle."""
        reply = self.client.find("ssm", self.region, "get_parameter", Name=self.plan.ring_parameter(ring))
        if reply is None:
            return None
        parameter = reply["Parameter"]
        return read_ring_state(parameter["Value"], parameter["LastModifiedDate"], parameter["Version"])

    def promote(self, ring: Ring, state: RingState, before: RingState | None) -> None:
        """Write the state of a ring. Raises PartialError if it was changed since `before` was read."""
        values = {"Name": self.plan.ring_parameter(ring), "Value": state.text, "Type": "String", "Overwrite": True}
        reply = self.client.call("ssm", self.region, "put_parameter", **values)
        if reply["Version"] != (before.revision if before else 0) + 1:
            fix = "`bedplate bundle list` shows the rings; run the command again"
            raise PartialError(f"somebody else promoted a bundle to {ring.value} at the same time", fix=fix)

    def statuses(self, instances: Collection[str]) -> Mapping[str, NodeStatus | None]:
        """Return the status of the last configuration run of instances; None without a status."""
        texts = self._texts("run.json", instances)
        return {name: read_node_status(texts[name]) if name in texts else None for name in instances}

    def use_reports(self, instances: Collection[str]) -> Mapping[str, UseReport | None]:
        """Return the last report of use of instances; None for an invalid one."""
        return {name: read_use_report(text) for name, text in self._texts("idle.json", instances).items()}

    def _texts(self, file: str, instances: Collection[str]) -> Mapping[str, bytes]:
        """Return a file in the status of each instance that has it; empty for one that is too large."""
        keys = {owner: key for key in self.keys("status/") if (owner := status_owner(key, file))}
        return {name: self._text(keys[name]) for name in instances if name in keys}

    def _text(self, key: str) -> bytes:
        try:
            return self.get(key)
        except TooLarge:
            return b""


def object_versions(client: AwsClient, region: str, bucket: str, prefix: str = "") -> Iterator[Mapping[str, str]]:
    """Yield key and id of each version of the objects with a prefix, deletions included."""
    for page in client.pages("s3", region, "list_object_versions", Bucket=bucket, Prefix=prefix):
        for entry in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            yield {"Key": entry["Key"], "VersionId": entry["VersionId"]}


def status_owner(key: str, name: str) -> str:
    """Return the instance whose status file of this name has the key; empty for another key.

    An instance may write any key below `status/ROLE:INSTANCE/`, also one that ends with this name.
    """
    folder, *path = key.removeprefix("status/").split("/")
    return folder.rpartition(":")[2] if path == [name] else ""
