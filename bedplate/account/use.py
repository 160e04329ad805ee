"""Whether people use their machines, as these report it in the bucket of their region."""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from bedplate.account.client import AwsClient
from bedplate.errors import BedplateError

_STATUS, _FILE = "status/", "idle.json"
_FRESH = 300.0  # a machine writes a report every five minutes, and at once if its use has changed


@dataclass(frozen=True, slots=True)
class UseReport:
    """The report of a machine at a `time`: it is unused since `idle_since`, or in use."""

    time: float
    idle_since: float | None


@dataclass
class UseReports:
    """The last report of each machine, from the buckets by region. IAM lets a machine write only below its own id."""

    client: AwsClient
    buckets: Mapping[str, str]
    _keys: dict[str, str] = field(default_factory=dict)
    _reports: dict[str, UseReport] = field(default_factory=dict)

    def read(self, region: str, instances: Collection[str], now: float) -> Mapping[str, UseReport]:
        """Return the reports of instances that have written a valid one.

        Those of unused machines are always read again. If AWS refuses that, the use of a machine is unknown.
        """
        with suppress(BedplateError):
            if not self._keys.keys() >= set(instances):
                self._keys.update(self._list(region))
        for instance in instances:
            report = self._reports.get(instance)
            if report and report.idle_since is None and now - report.time < _FRESH:
                continue
            self._reports.pop(instance, None)
            if latest := self._read(region, instance):
                self._reports[instance] = latest
        return {instance: self._reports[instance] for instance in instances if instance in self._reports}

    def _list(self, region: str) -> dict[str, str]:
        """Return the key of each instance's report. The id of the role in it is known to AWS only."""
        pages = self.client.pages("s3", region, "list_objects_v2", Bucket=self.buckets[region], Prefix=_STATUS)
        items = [item for page in pages for item in page.get("Contents", ())]
        # If the stacks have made a new role, an instance has two keys.
        keys = [item["Key"] for item in sorted(items, key=lambda item: item["LastModified"])]
        return {key.split("/")[1].rpartition(":")[2]: key for key in keys if key.endswith(f"/{_FILE}")}

    def _read(self, region: str, instance: str) -> UseReport | None:
        """Return the report of an instance; None for an invalid one: a machine may write any text."""
        if instance not in self._keys:
            return None
        try:
            reply = self.client.call("s3", region, "get_object", Bucket=self.buckets[region], Key=self._keys[instance])
            return _parse(json.loads(reply["Body"].read()))
        except (ValueError, TypeError, KeyError, BedplateError):
            return None


def _parse(document: Mapping[str, Any]) -> UseReport | None:
    since = document["idle_since"]
    report = UseReport(float(document["time"]), None if since is None else float(since))
    return report if isfinite(report.time) and isfinite(report.idle_since or 0.0) else None
