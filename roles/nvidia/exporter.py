"""The DCGM exporter of a machine with GPUs, which the hub reads: NVIDIA's package, with own fields, TLS and limits.

Sources: NVIDIA/dcgm-exporter, options in pkg/cmd/app.go and the unit in packaging, read 2026-11. It never ran here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from pyinfra.context import host

from bedplate.plan.firewall import GPU_EXPORTER_PORT
from roles.base import UNITS, ManagedFile, file_text, render
from roles.monitoring.role import MAKE_KEY, WEB, PrivateAddress

PACKAGE, UNIT = "datacenter-gpu-manager-exporter", "nvidia-dcgm-exporter.service"
FIELDS = "/etc/bedplate/gpu-metrics.csv"
DROP_IN = f"{UNITS}/{UNIT}.d/60-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter; `address` is None if AWS assigns it. `of_pods`: it asks the kubelet which pod has which GPU."""

    address: IPv4Address | None
    of_pods: bool

    def files(self) -> Iterator[ManagedFile]:
        """Yield the fields to collect, and the drop-in of NVIDIA's unit."""
        address = self.address or host.get_fact(PrivateAddress)
        values = {"listen": f"{address}:{GPU_EXPORTER_PORT}", "fields": FIELDS, "web": WEB, "make_key": MAKE_KEY}
        yield ManagedFile("Write the fields of the exporter of GPUs", FIELDS, file_text("nvidia/gpu-metrics.csv"))
        drop_in = render("nvidia/exporter.conf.j2", of_pods=self.of_pods, **values)
        yield ManagedFile("Write a systemd drop-in for the exporter of GPUs", DROP_IN, drop_in)
