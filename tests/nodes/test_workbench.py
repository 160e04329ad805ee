"""The roles `workbench` and `monitoring` on a cloud node.

Defects of rules about the cloud are seeded here: host names of cloud-init, and AWS storage. Homes are local, because
there is no EFS.
"""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import find_node
from roles.storage.role import Storage
from roles.workbench.role import uv_version
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.lab import FAILED, FleetFolder, check_defects, make_fleet_folder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator, apply_roles
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

NAME = "workbench-cpu-1.us-west-2"
ROLES = ("--role", "baseline", "--role", "people", "--role", "workbench", "--role", "monitoring")
# The default of cloud images: cloud-init resets the host name at each boot.
CLOUD_INIT = "mkdir -p /etc/cloud/cloud.cfg.d; echo 'preserve_hostname: false' >/etc/cloud/cloud.cfg"
CONTROL = "control-1.us-west-2"
# The state after the first boot. A container cannot mount disks, so a tmpfs has the name of one.
ETCD = """
source=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0
mkdir -p /dev/disk/by-id /var/lib/etcd
ln -s ../../nvme1n1 $source
echo "$source /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300 0 2" >>/etc/fstab
mount -t tmpfs /dev/nvme1n1 /var/lib/etcd
"""
_DEFECTS = defects_at(Where.CLOUD)


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab) -> FleetFolder:
    """Return an operator's folder; its fleet file mounts the AWS store at another path than homes."""
    folder = make_fleet_folder(node_lab, node_lab.folder)
    folder.edit(r"(home: \{kind: efs, .*) mount: /home\}", r"\1 mount: /shared}")
    folder.record()
    return folder


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab, lab: FleetFolder) -> Operator:
    """Return the operator of the lab."""
    return Operator(node_lab, lab.fleet)


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, lab: FleetFolder, operator: Operator) -> Node:
    """Return a node with the roles applied."""
    booted = node_lab.boot(NAME, "10.64.33.7")
    booted.run(CLOUD_INIT)
    assert operator.changes(NAME, *ROLES)[NAME]
    apply_roles(node_lab, NAME, Storage(find_node(plan_of(lab.fleet), NAME, load_catalog()).mounts))
    return booted


@pytest.fixture(scope="module")
def member(node_lab: NodeLab, lab: FleetFolder) -> Node:
    """Return a control plane node after its first boot, without roles."""
    booted = node_lab.boot(CONTROL, find_node(plan_of(lab.fleet), CONTROL, load_catalog()).address or "")
    booted.run(ETCD)
    return booted


@pytest.fixture(scope="module")
def rule_outcomes(
    node: Node, member: Node, lab: FleetFolder, tmp_path_factory: pytest.TempPathFactory
) -> dict[Rule, str]:
    """Return the outcome of each rule about the cloud, with its defect."""
    folder = tmp_path_factory.mktemp("defects")
    outcomes: dict[Rule, str] = {}
    for booted in (node, member):
        seeded = {rule: defect for rule, defect in _DEFECTS.items() if defect.on == booted.name}
        outcomes |= check_defects(lab, booted, seeded, folder)
    return outcomes


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """A second apply changes nothing."""
    assert operator.changes(NAME, *ROLES) == {NAME: []}


def test_person_creates_an_environment_on_scratch(node: Node) -> None:
    """A person creates a uv environment in their scratch folder, which other people cannot read."""
    node.run("su --login grace --command 'cd $SCRATCH && uv venv --quiet --offline work && work/bin/python -V'")

    assert "work" in node.run("ls /scratch/grace").split()
    with pytest.raises(CommandError, match="Permission denied"):
        node.run("su --login ada --shell /bin/sh --command 'ls /scratch/grace'")


@pytest.mark.parametrize("command", ["nvcc", "bash -lc nvcc", "sh -c nvcc"], ids=["sent", "login", "other shell"])
def test_cuda_is_on_path_over_ssh(node: Node, command: str) -> None:
    """CUDA's programs are on PATH in SSH commands and in login shells."""
    program = "/usr/local/cuda/bin/nvcc"
    node.run(f"install -D -m 755 /dev/null {program}; printf '#!/bin/sh\\necho found\\n' >{program}")

    assert node.ssh(command).stdout == "found\n"


def test_changed_uv_is_replaced(node: Node, operator: Operator) -> None:
    """An apply replaces a uv program that is not the pinned one."""
    node.run("printf '#!/bin/sh\\necho uv 0.0.1\\n' > /opt/uv/bin/uv")

    changes = operator.changes(NAME, "--role", "workbench")[NAME]

    assert changes == [f"Install uv {uv_version()}"]
    assert node.run("uv --version") != "uv 0.0.1\n"


def test_metrics_are_served_on_the_private_address_only(node: Node) -> None:
    """node_exporter answers on the private address over TLS, and not on loopback."""
    assert "node_memory_MemTotal_bytes" in metrics(node)
    with pytest.raises(CommandError, match=r"Connection refused|connect to"):
        node.run("curl -kfsS --max-time 20 https://127.0.0.1:9100/metrics")
    with pytest.raises(CommandError, match="400"):
        node.run(f"curl -fsS --max-time 20 http://{node.address}:9100/metrics")


def metrics(node: Node) -> str:
    """Return what the exporter of a machine says."""
    return node.run(f"curl -kfsS --max-time 60 https://{node.address}:9100/metrics")


def test_textfile_metrics_are_served(node: Node) -> None:
    """node_exporter serves the metrics of text files."""
    node.run("echo 'bedplate_sample 7' > /var/lib/prometheus/node-exporter/sample.prom")

    assert "\nbedplate_sample 7\n" in metrics(node)


def test_collected_metrics_vanish_with_their_collectors(node: Node) -> None:
    """The exporter serves what the collectors say; after their end nothing of it is left."""
    file = "/var/lib/prometheus/node-exporter/bedplate-metrics.prom"
    node.run(f"for i in $(seq 60); do [ -s {file} ] && exit; sleep 0.5; done; exit 1")
    collected = metrics(node)
    node.run("systemctl stop bedplate-metrics")
    left = metrics(node)
    node.run("systemctl start bedplate-metrics")

    assert 'bedplate_collector_ok{collector="mounts"} 1\n' in collected
    assert "bedplate_bundle_info" not in collected  # an operator has applied the roles
    assert "bedplate_collect" not in left


def test_killed_node_exporter_restarts(node: Node) -> None:
    """Systemd restarts a killed node_exporter."""
    command = "systemctl show --property MainPID --value prometheus-node-exporter"
    before = node.run(command).strip()

    node.run(f"kill -KILL {before}")

    node.run(f"for i in $(seq 240); do case $({command}) in 0|{before}) sleep 0.5 ;; *) exit ;; esac; done; exit 1")


def test_workbench_survives_a_reboot(node: Node) -> None:
    """After a reboot, node_exporter runs and scratch folders exist."""
    node.restart()

    node.run("for i in $(seq 120); do ss -ltn | grep -q 10.64.33.7:9100 && exit; sleep 0.5; done; exit 1")
    assert node.run("stat --format %U /scratch/ada").strip() == "ada"


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on the applied node, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED
