"""The bundles of nodes in an account: objects in the bucket of each region, and the SSM parameter of each ring."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.account.client import AwsClient, NotThere
from bedplate.bundle import RingState, hash_of, read_ring_state
from bedplate.errors import PartialError
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.groups import Ring

_CHUNK = 1 << 20


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
        try:
            self.client.call("s3", self.region, "head_object", Bucket=self.bucket, Key=key)
        except NotThere:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises PartialError if the region's stack has not created the bucket."""
        try:
            self.client.call("s3", self.region, "put_object", Bucket=self.bucket, Key=key, Body=data)
        except NotThere:
            fix = f"deploy it: `bedplate up --stack {self.region}`"
            raise PartialError(f"no bucket {self.bucket}", fix=fix) from None

    def delete(self, key: str) -> None:
        """Delete an object; a missing object is ignored."""
        self.client.call("s3", self.region, "delete_object", Bucket=self.bucket, Key=key)

    def get(self, key: str) -> bytes:
        """Return an object. Raises NotThere."""
        reply = self.client.call("s3", self.region, "get_object", Bucket=self.bucket, Key=key)
        body: bytes = reply["Body"].read()
        return body

    def save(self, key: str, file: Path) -> None:
        """Write an object to a file. Raises NotThere."""
        reply = self.client.call("s3", self.region, "get_object", Bucket=self.bucket, Key=key)
        with file.open("wb") as stream:
            for chunk in reply["Body"].iter_chunks(_CHUNK):
                stream.write(chunk)

    def blob(self, name: str) -> bytes:
        """Return an archive. Raises PartialError if it is not what its name says."""
        data = self.get(f"blobs/{name}")
        if hash_of(data) != name:
            raise PartialError(f"damaged object blobs/{name} in {self.bucket}", fix="delete it, then push again")
        return data

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys of the objects with a prefix."""
        for page in self.client.pages("s3", self.region, "list_objects_v2", Bucket=self.bucket, Prefix=prefix):
            yield from (item["Key"] for item in page.get("Contents", ()))

    def ring(self, ring: Ring) -> RingState | None:
        """Return the state of a ring; None before its first bundle."""
        try:
            name = self.plan.ring_parameter(ring)
            parameter = self.client.call("ssm", self.region, "get_parameter", Name=name)["Parameter"]
        except NotThere:
            return None
        return read_ring_state(parameter["Value"], parameter["LastModifiedDate"], parameter["Version"])

    def promote(self, ring: Ring, state: RingState, before: RingState | None) -> None:
        """Write the state of a ring. Raises PartialError if it was changed since `before` was read."""
        values = {"Name": self.plan.ring_parameter(ring), "Value": state.text, "Type": "String", "Overwrite": True}
        reply = self.client.call("ssm", self.region, "put_parameter", **values)
        if reply["Version"] != (before.revision if before else 0) + 1:
            fix = "`bedplate bundle list` shows the rings; run the command again"
            raise PartialError(f"somebody else promoted a bundle to {ring.value} at the same time", fix=fix)

    def statuses(self, instances: Collection[str]) -> Mapping[str, Mapping[str, Any] | None]:
        """Return the status of the last configuration run of instances; None without a status."""
        keys = {key.split("/")[1].rpartition(":")[2]: key for key in self.keys("status/") if key.endswith("/run.json")}
        return {name: self._status(keys[name]) if name in keys else None for name in instances}

    def _status(self, key: str) -> Mapping[str, Any] | None:
        """Return the status in an object; None without a JSON object: a node may write any text there."""
        try:
            status = json.loads(self.get(key))
        except ValueError:
            return None
        return status if isinstance(status, dict) and "ok" in status else None
