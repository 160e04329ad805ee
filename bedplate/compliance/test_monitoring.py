"""Every node: what it tells, and to whom."""

import re
from ipaddress import ip_address

from testinfra.host import Host

from bedplate.plan import FleetPlan
from bedplate.plan.nodes import EXPORTER_PORT, NodePlan

_UNIT = "prometheus-node-exporter"


def test_the_node_can_be_watched_from_every_boot_on(host: Host) -> None:
    """The exporter runs, and starts with the machine."""
    exporter = host.service(_UNIT)

    assert exporter.is_enabled
    assert exporter.is_running


def test_figures_are_given_on_one_private_address(host: Host, node: NodePlan, plan: FleetPlan) -> None:
    """The exporter listens on the plan's address, or on one that AWS gave in the region's block, and on no other."""
    listening = _listening(host)

    assert len(listening) == 1, f"it listens on {', '.join(listening) or 'none'}"
    at = ip_address(listening[0])
    assert at == node.address if node.address else at in plan.region(node.region).block


def test_figures_are_given(host: Host) -> None:
    """Whoever may ask gets the machine's figures."""
    listening = _listening(host)

    assert listening, "nothing listens at the exporter's port"
    answer = host.check_output("curl -fsS --max-time 20 http://%s:%s/metrics", listening[0], str(EXPORTER_PORT))
    assert "\nnode_memory_MemTotal_bytes " in answer


def test_others_figures_are_roots_to_write(host: Host) -> None:
    """The folder of figures takes files from root alone, and its files are told."""
    folder = host.file("/var/lib/prometheus/node-exporter")

    assert (folder.user, folder.group, folder.mode) == ("root", "root", 0o755)
    assert f"--collector.textfile.directory={folder.path}" in host.check_output(
        "systemctl show --property ExecStart --property Environment %s; cat /etc/default/%s", _UNIT, _UNIT
    )


def test_a_lost_file_server_does_not_hang_the_figures(host: Host) -> None:
    """File systems of other machines are not measured."""
    said = re.search(r"fs-types-exclude=(\S+?)['\s]", host.file(f"/etc/default/{_UNIT}").content_string)

    assert said is not None
    assert all(re.search(said[1], kind) for kind in ("nfs", "nfs4", "fuse.mount-s3", "autofs"))


def test_the_exporter_gets_no_new_rights_and_writes_nothing(host: Host) -> None:
    """Whoever breaks into it finds a system that cannot be written."""
    told = host.check_output("systemctl show --property NoNewPrivileges --property ProtectSystem %s", _UNIT)

    assert set(told.splitlines()) == {"NoNewPrivileges=yes", "ProtectSystem=strict"}


def _listening(host: Host) -> list[str]:
    told = host.check_output("ss --listening --tcp --numeric --no-header 'sport = :%s'", str(EXPORTER_PORT))
    at = [line.split()[3].rpartition(":")[0] for line in told.splitlines()]
    # By a star ss says every address, of both families.
    return [each.strip("[]").replace("*", "::") for each in at]
