"""Rules for every node: node_exporter and its metrics, which only the hub reads."""

import re
import time
from ipaddress import ip_address

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, listening_addresses
from bedplate.plan import FleetPlan
from bedplate.plan.firewall import EXPORTER_PORT
from bedplate.plan.nodes import NodePlan
from roles.monitoring.role import KEYS, TEXTFILES, UNIT

_UNIT = "prometheus-node-exporter"
_OLD = 120.0


def test_node_exporter_is_enabled(host: Host) -> None:
    """node_exporter runs and starts at boot."""
    exporter = host.service(_UNIT)

    assert exporter.is_enabled
    assert exporter.is_running


def test_node_exporter_listens_on_one_address(host: Host, node: NodePlan, plan: FleetPlan) -> None:
    """node_exporter listens only on the planned address, or on one that AWS assigned from the region's block."""
    listening = listening_addresses(host, EXPORTER_PORT)

    assert len(listening) == 1, f"node_exporter listens on {', '.join(listening) or 'no address'}"
    address = ip_address(listening[0])
    assert address == node.address if node.address else address in plan.region(node.region).block


def test_node_exporter_serves_metrics(host: Host, node: NodePlan) -> None:
    """node_exporter serves the metrics of the node."""
    listening = listening_addresses(host, EXPORTER_PORT)

    assert listening, f"nothing listens on port {EXPORTER_PORT}"
    metrics = host.check_output(_fetch(listening[0], is_secure=node.is_observed))
    assert "\nnode_memory_MemTotal_bytes " in metrics


@applies_if(lambda node: node.is_observed)
def test_metrics_leave_the_machine_encrypted(host: Host) -> None:
    """node_exporter answers over TLS only, with a key that no other user can read."""
    key, listening = host.file(f"{KEYS}/tls.key"), listening_addresses(host, EXPORTER_PORT)

    assert listening, f"nothing listens on port {EXPORTER_PORT}"
    assert host.run(_fetch(listening[0], is_secure=False)).failed, "it answers without TLS"
    assert (key.user, key.group, key.mode) == ("root", "prometheus", 0o640)


@applies_if(lambda node: node.is_observed)
def test_metrics_of_the_machine_are_collected(host: Host) -> None:
    """The collectors run, start at boot, and have written the file of metrics within two minutes."""
    collectors = host.service(UNIT)
    text = host.file(f"{TEXTFILES}/bedplate-metrics.prom").content_string
    times = re.findall(r"^bedplate_collect_time_seconds (\S+)$", text, re.MULTILINE)

    assert collectors.is_enabled
    assert collectors.is_running
    assert abs(time.time() - float(times[0])) < _OLD, f"written at {times[0]}"


def test_textfile_metrics_belong_to_root(host: Host) -> None:
    """Only root can write textfile metrics, and node_exporter serves them."""
    folder = host.file("/var/lib/prometheus/node-exporter")

    assert (folder.user, folder.group, folder.mode) == ("root", "root", 0o755)
    assert f"--collector.textfile.directory={folder.path}" in host.check_output(
        "systemctl show --property ExecStart --property Environment %s; cat /etc/default/%s", _UNIT, _UNIT
    )


def test_node_exporter_skips_remote_file_systems(host: Host) -> None:
    """node_exporter ignores remote file systems, so a failed file server does not block it."""
    match = re.search(r"fs-types-exclude=(\S+?)['\s]", host.file(f"/etc/default/{_UNIT}").content_string)

    assert match is not None
    assert all(re.search(match[1], kind) for kind in ("nfs", "nfs4", "fuse.mount-s3", "autofs"))


def test_node_exporter_is_sandboxed(host: Host) -> None:
    """node_exporter cannot gain privileges or write to the system."""
    properties = host.check_output("systemctl show --property NoNewPrivileges --property ProtectSystem %s", _UNIT)

    assert set(properties.splitlines()) == {"NoNewPrivileges=yes", "ProtectSystem=full"}


def _fetch(address: str, *, is_secure: bool) -> str:
    """Return the command that reads the metrics; the machine has made the certificate itself."""
    scheme = "https" if is_secure else "http"
    return f"curl --insecure -fsS --max-time 20 {scheme}://{address}:{EXPORTER_PORT}/metrics"
