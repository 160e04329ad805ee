"""The roles `workbench` and `monitoring` on a machine of the cloud: people work there, and watchers see it.

Rules about what the cloud alone has are broken here: names that cloud-init sets back, and storage of AWS's. Homes are
the machine's own, for there is no EFS to mount.
"""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import node_of
from roles.storage.role import Storage
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.defects import Rule, Where, planted
from tests.testlab.machines.lab import FOUND, LabFolder, lab_folder, looked
from tests.testlab.machines.operator import Operator, deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

NAME = "workbench-cpu-1.us-west-2"
ROLES = ("--role", "baseline", "--role", "people", "--role", "workbench", "--role", "monitoring")
# What an image of the cloud has: at each boot it would set the machine's name back.
CLOUD_INIT = "mkdir -p /etc/cloud/cloud.cfg.d; echo 'preserve_hostname: false' >/etc/cloud/cloud.cfg"
CONTROL = "control-1.us-west-2"
# The state that the first boot leaves. A container mounts no disk: a tmpfs has the name of one.
ETCD = """
source=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0
mkdir -p /dev/disk/by-id /var/lib/etcd
ln -s ../../nvme1n1 $source
echo "$source /var/lib/etcd ext4 noatime,x-systemd.device-timeout=300 0 2" >>/etc/fstab
mount -t tmpfs /dev/nvme1n1 /var/lib/etcd
"""
_DEFECTS = planted(Where.CLOUD)


@pytest.fixture(scope="module")
def lab(stand: Stand) -> LabFolder:
    """Give the lab's folder, its store of AWS's mounted at another path than homes."""
    made = lab_folder(stand, stand.folder)
    made.edit(r"(home: \{kind: efs, .*) mount: /home\}", r"\1 mount: /shared}")
    made.record()
    return made


@pytest.fixture(scope="module")
def operator(stand: Stand, lab: LabFolder) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, lab.fleet)


@pytest.fixture(scope="module")
def node(stand: Stand, lab: LabFolder, operator: Operator) -> Node:
    """Give a machine on which the roles are in force."""
    booted = stand.boot(NAME, "10.64.33.7")
    booted.run(CLOUD_INIT)
    assert operator.changes(NAME, *ROLES)[NAME]
    deployed(stand, NAME, Storage(node_of(plan_of(lab.fleet), NAME, load_catalog()).mounts))
    return booted


@pytest.fixture(scope="module")
def member(stand: Stand, lab: LabFolder) -> Node:
    """Give a machine of the control plane after its first boot, without roles."""
    booted = stand.boot(CONTROL, node_of(plan_of(lab.fleet), CONTROL, load_catalog()).address or "")
    booted.run(ETCD)
    return booted


@pytest.fixture(scope="module")
def found(node: Node, member: Node, lab: LabFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Give what became of each rule about what the cloud alone has."""
    folder = tmp_path_factory.mktemp("planted")
    told: dict[Rule, str] = {}
    for at in (node, member):
        told |= looked(lab, at, {rule: each for rule, each in _DEFECTS.items() if each.on == at.name}, folder)
    return told


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """What is in force is found to be so on a real machine."""
    assert operator.changes(NAME, *ROLES) == {NAME: []}


def test_a_person_makes_an_environment_on_scratch(node: Node) -> None:
    """Uv works for whoever logs in, its cache lies on local disk, and nobody else looks into it."""
    node.run("su --login grace --command 'cd $SCRATCH && uv venv --quiet --offline work && work/bin/python -V'")

    assert "work" in node.run("ls /scratch/grace").split()
    with pytest.raises(CommandError, match="Permission denied"):
        node.run("su --login ada --shell /bin/sh --command 'ls /scratch/grace'")


@pytest.mark.parametrize("command", ["nvcc", "bash -lc nvcc", "sh -c nvcc"], ids=["sent", "login", "other shell"])
def test_cudas_programs_are_found_over_ssh(node: Node, command: str) -> None:
    """Whether a shell logs in or a command is sent alone; a stand-in is found where CUDA's own would lie."""
    program = "/usr/local/cuda/bin/nvcc"
    node.run(f"install -D -m 755 /dev/null {program}; printf '#!/bin/sh\\necho found\\n' >{program}")

    assert node.ssh(command).stdout == "found\n"


def test_a_uv_that_was_broken_is_made_whole(node: Node, operator: Operator) -> None:
    """The next apply finds that the program is not the pinned one, and takes it anew by its sum."""
    node.run("printf '#!/bin/sh\\necho uv 0.0.1\\n' > /opt/uv/bin/uv")

    changes = operator.changes(NAME, "--role", "workbench")[NAME]

    assert [change.partition(" ")[0] for change in changes] == ["uv"]
    assert node.run("uv --version") != "uv 0.0.1\n"


def test_figures_are_given_to_whoever_reaches_the_private_address(node: Node) -> None:
    """The desk reads them at the machine's one address; loopback gives none."""
    told = node.desk.run("curl", "-fsS", "--noproxy", "*", f"http://{node.address}:9100/metrics", seconds=60)

    assert "node_memory_MemTotal_bytes" in told.stdout
    with pytest.raises(CommandError, match=r"Connection refused|connect to"):
        node.run("curl -fsS --max-time 20 http://127.0.0.1:9100/metrics")


def test_others_figures_come_with_the_nodes(node: Node) -> None:
    """A file in the folder of figures is told at the next question."""
    node.run("echo 'bedplate_sample 7' > /var/lib/prometheus/node-exporter/sample.prom")

    assert "\nbedplate_sample 7\n" in node.run(f"curl -fsS --max-time 20 http://{node.address}:9100/metrics")


def test_a_watcher_that_died_comes_back(node: Node) -> None:
    """Whatever ended the exporter, systemd starts it again."""
    asked = "systemctl show --property MainPID --value prometheus-node-exporter"
    before = node.run(asked).strip()

    node.run(f"kill -KILL {before}")

    node.run(f"for i in $(seq 240); do case $({asked}) in 0|{before}) sleep 0.5 ;; *) exit ;; esac; done; exit 1")


def test_the_bench_outlives_a_boot(node: Node) -> None:
    """The exporter finds its address, and people find their scratch."""
    node.restart()

    node.run("for i in $(seq 120); do ss -ltn | grep -q 10.64.33.7:9100 && exit; sleep 0.5; done; exit 1")
    assert node.run("stat --format %U /scratch/ada").strip() == "ada"


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_the_planted_defect_is_found(rule: Rule, found: dict[Rule, str]) -> None:
    """The rule is kept on the machine as the roles made it, and violated while its defect stands."""
    assert found[rule] == FOUND
