"""A new machine of a site, from the installer to the first audit, with the commands of docs/nodes.md."""

import shlex
from collections.abc import Sequence

import pytest

from tests.testlab.machines.lab import FleetFolder, make_fleet_folder
from tests.testlab.machines.node_lab import Node, NodeLab

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# The state after the installer: no administrator and no sudo.
_REMOVE_SUDO = "userdel --remove ubuntu; rm /etc/sudoers.d/*; SUDO_FORCE_REMOVE=yes apt-get purge --yes --quiet sudo"


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return the machine as its installer left it."""
    booted = node_lab.boot(NAME, "192.168.40.21")
    booted.run(f"{_REMOVE_SUDO} 2>&1")
    return booted


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab, tmp_path_factory: pytest.TempPathFactory) -> FleetFolder:
    """Return an operator's folder whose lock has no host keys."""
    return make_fleet_folder(node_lab, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def next_commands(node: Node, lab: FleetFolder) -> Sequence[str]:
    """Return the commands that the bootstrap script prints when root runs it on the console."""
    (node.root / "root" / "first.sh").write_text(lab.bedplate("node", "bootstrap", NAME).stdout)
    return node.run("bash /root/first.sh", seconds=300).splitlines()


def test_bootstrap_prints_the_next_commands(node: Node, next_commands: Sequence[str]) -> None:
    """The bootstrap script ends with the next commands, with the fingerprint of the node's host key."""
    fingerprint = node.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2").strip()

    assert [*next_commands] == [
        f"bedplate node trust {NAME} {fingerprint}",
        f"bedplate node apply {NAME} --user ubuntu",
    ]
    assert node.run("hostname").strip() == "titan-01"


def test_printed_commands_configure_the_node(node: Node, lab: FleetFolder, next_commands: Sequence[str]) -> None:
    """The printed commands record the key and apply the node, and the audit finds no violation."""
    trust, apply = (shlex.split(line)[1:] for line in next_commands)
    login = ("--user", "ubuntu", "--identity", str(lab.node_lab.key))

    trusted = lab.bedplate(*trust)
    applied = lab.bedplate(*apply, *login[2:], "--role", "people")
    audited = lab.bedplate("node", "audit", NAME, *login, "--role", "people")

    assert (trusted.returncode, applied.returncode) == (0, 0), trusted.stderr + applied.stdout
    assert audited.returncode == 0, audited.stdout
    assert node.run("getent passwd ubuntu | cut -d: -f6").strip() == "/var/lib/ubuntu"


def test_bootstrap_can_be_repeated(node: Node, next_commands: Sequence[str]) -> None:
    """A second run of the bootstrap script prints the same, and changes no host key."""
    assert node.run("bash /root/first.sh").splitlines() == [*next_commands]
