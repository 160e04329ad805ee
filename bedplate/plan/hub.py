"""The hub: one machine with the records of all runs, behind one name, and where its backups go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from bedplate.plan.stores import BucketPlan, ExportPlan

HUB_HOST = "hub"
"""The name of the hub below the fleet's domain, and of its machine in a region."""
HUB_DUMPS, HUB_FILES = "dumps", "files"
"""The folders of its bucket: each hub writes below its own name in them. Dumps expire."""
HUB_FOLDER = "/srv/hub"
"""Its data: the mount point of the kept volume, at a site a folder of the machine."""
HUB_CERTIFICATE = f"{HUB_FOLDER}/keys/tls.crt"
"""The certificate that it makes itself, which clients trust alone."""
HUB_FLEET = f"{HUB_FOLDER}/public/fleet.json"
PROMETHEUS_PORT, ALERTMANAGER_PORT, ALERTS_PORT = 9090, 9093, 9095
"""Ports of its loopback address: of metrics, of alerts, and of the program that sends alerts to people."""
METRICS_UID, GRAFANA_UID, NGINX_UID = 551, 552, 33
"""The users that reach them. Debian's www-data is always 33."""


@dataclass(frozen=True, slots=True)
class HubPlan:
    """The hub: `node` is the name of its machine (`hub.us-west-2`, `vault.cellar`), with a fixed address.

    In a region it is an instance in a `zone`, with a `bucket` for backups. At a site, `region` is None, and `backup` is
    the store of another machine; `zone` and `type` are empty.
    """

    node: str
    domain: str
    address: IPv4Address
    region: str | None = None
    zone: str = ""
    type: str = ""
    disk: int = 0
    bucket: BucketPlan | None = None
    backup: ExportPlan | None = None
    messages: Mapping[str, Any] = field(default_factory=dict)
    """`relay` and `sender` of mail, `people`: the address of each, empty for a webhook, and `alerts`: who gets them."""
    keep: str = "90d"
    remote_write: str | None = None
    """How long it keeps metrics, and where else they go."""
    watched: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The permanent machines with place, address and role, and the least machines of each group, on its machine."""
    published: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """`fleet.json` as the plan knows it, on its machine."""

    @property
    def host(self) -> str:
        """The name that clients use, and that its certificate has."""
        return f"{HUB_HOST}.{self.domain}"

    @property
    def place(self) -> str:
        """Its region or site."""
        return self.node.partition(".")[2]
