"""Rules for every node: node_exporter and its metrics."""

import re
from ipaddress import ip_address

from testinfra.host import Host

from bedplate.plan import FleetPlan
from bedplate.plan.nodes import EXPORTER_PORT, NodePlan

_UNIT = "prometheus-node-exporter"


def test_node_exporter_is_enabled(host: Host) -> None:
    """node_exporter runs and starts at boot."""
    exporter = host.service(_UNIT)

    assert exporter.is_enabled
    assert exporter.is_running


def test_node_exporter_listens_on_one_address(host: Host, node: NodePlan, plan: FleetPlan) -> None:
    """node_exporter listens only on the planned address, or on one that AWS assigned from the region's block."""
    listening = _listening(host)

    assert len(listening) == 1, f"node_exporter listens on {', '.join(listening) or 'no address'}"
    address = ip_address(listening[0])
    assert address == node.address if node.address else address in plan.region(node.region).block


def test_node_exporter_serves_metrics(host: Host) -> None:
    """node_exporter serves the metrics of the node."""
    listening = _listening(host)

    assert listening, f"nothing listens on port {EXPORTER_PORT}"
    metrics = host.check_output("curl -fsS --max-time 20 http://%s:%s/metrics", listening[0], str(EXPORTER_PORT))
    assert "\nnode_memory_MemTotal_bytes " in metrics


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


def _listening(host: Host) -> list[str]:
    """Return the addresses on which the exporter's port is open."""
    output = host.check_output("ss --listening --tcp --numeric --no-header 'sport = :%s'", str(EXPORTER_PORT))
    addresses = [line.split()[3].rpartition(":")[0] for line in output.splitlines()]
    # ss prints a star for all addresses of both families.
    return [address.strip("[]").replace("*", "::") for address in addresses]
