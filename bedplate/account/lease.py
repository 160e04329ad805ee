"""The lease of commands that change images: an object in the home region's bucket excludes other machines.

A file lock excludes a second command in one fleet folder; other operators have folders of their own. A lease that its
holder has not renewed, or whose process on this machine has ended, is taken over.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from bedplate.account.bundle import RegionStore
from bedplate.account.client import NotThere
from bedplate.account.start import Clock
from bedplate.errors import BedplateError, HeldError, PartialError
from bedplate.hold import Holder, parse_holder, this_process

KEY = "images/lease.json"
VALID, _RENEW = 600.0, 60.0
"""Seconds after which a lease is abandoned, longer than any step of a bake, and after which its holder renews it."""


@dataclass
class Lease:
    """The lease of this process."""

    store: RegionStore
    clock: Clock
    holder: Holder = field(default_factory=this_process)
    _renewed: float = 0.0
    _tag: str = ""

    def take(self) -> None:
        """Take the lease. Raises HeldError if the process of another operator has it."""
        other, tag = self._read()
        if other and self._is_valid(other):
            holder = parse_holder(json.dumps(other).encode())
            fix = f"wait until it has ended; a lease is valid for {VALID / 60:.0f} minutes after its last renewal"
            raise HeldError(f"images are locked by {holder}", where=f"s3://{self.store.bucket}/{KEY}", fix=fix)
        self._write({"IfMatch": tag} if tag else {"IfNoneMatch": "*"})

    def sleep(self, seconds: float) -> None:
        """Sleep; renew the lease if it is due."""
        if self.clock.now() - self._renewed >= _RENEW:
            self._write({"IfMatch": self._tag})
        self.clock.sleep(seconds)

    def release(self) -> None:
        """Delete the lease."""
        with suppress(BedplateError):  # it expires
            self.store.delete(KEY)

    def _read(self) -> tuple[Mapping[str, Any] | None, str]:
        """Return the current lease, None if it is invalid, and its version."""
        try:
            reply = self.store.client.call("s3", self.store.region, "get_object", Bucket=self.store.bucket, Key=KEY)
        except NotThere:
            return None, ""
        text = reply["Body"].read()
        with suppress(ValueError):
            if parse_holder(text):
                return json.loads(text), reply["ETag"]
        return None, reply["ETag"]

    def _is_valid(self, other: Mapping[str, Any]) -> bool:
        holder = parse_holder(json.dumps(other).encode())
        if holder is None or (holder.host, holder.pid) == (self.holder.host, self.holder.pid):
            return False
        return not holder.has_ended and self.clock.now() - float(other.get("renewed", 0)) < VALID

    def _write(self, condition: Mapping[str, str]) -> None:
        time = self.clock.now()
        body = json.dumps({**asdict(self.holder), "renewed": time}).encode()
        place = {"Bucket": self.store.bucket, "Key": KEY, "Body": body}
        try:
            reply = self.store.client.call("s3", self.store.region, "put_object", **place, **condition)
        except NotThere:
            return  # without a bucket nothing is baked
        except PartialError as error:
            if "PreconditionFailed" not in error.what and "ConditionalRequestConflict" not in error.what:
                raise
            fix = "run the command again: it continues"
            raise HeldError("another command has taken the lock of images", where=KEY, fix=fix) from None
        self._renewed, self._tag = time, reply["ETag"]


@contextmanager
def leased(store: RegionStore, clock: Clock) -> Iterator[Lease]:
    """Hold the lease while the block runs. Raises HeldError."""
    lease = Lease(store, clock)
    lease.take()
    try:
        yield lease
    finally:
        lease.release()
