"""The setup of a new site machine, from the installer to the first audit, with the commands in docs/nodes.md."""

import shlex
from collections.abc import Sequence

import pytest

from tests.testlab.machines.lab import LabFolder, lab_folder
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# An installer leaves no user with root access, and no sudo.
_BARE = "userdel --remove ubuntu; rm /etc/sudoers.d/*; SUDO_FORCE_REMOVE=yes apt-get purge --yes --quiet sudo"


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Return the machine as the installer left it."""
    machine = stand.boot(NAME, "192.168.40.21")
    machine.run(f"{_BARE} 2>&1")
    return machine


@pytest.fixture(scope="module")
def lab(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> LabFolder:
    """Return a fleet folder with a lock without host keys."""
    return lab_folder(stand, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def commands(node: Node, lab: LabFolder) -> Sequence[str]:
    """Run the bootstrap script as root; return the commands that it prints."""
    (node.root / "root" / "first.sh").write_text(lab.bedplate("node", "bootstrap", NAME).stdout)
    return node.run("sh /root/first.sh", seconds=300).splitlines()


def test_the_script_prints_the_next_commands(node: Node, commands: Sequence[str]) -> None:
    """With the fingerprint of the host key; sudo is installed, and the host name is set."""
    fingerprint = node.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2").strip()

    assert [*commands] == [f"bedplate node trust {NAME} {fingerprint}", f"bedplate node apply {NAME} --user ubuntu"]
    assert node.run("hostname").strip() == "titan-01"


def test_the_printed_commands_configure_the_machine(node: Node, lab: LabFolder, commands: Sequence[str]) -> None:
    """They record the key and create the first account; then the audit passes."""
    trust, apply = (shlex.split(line)[1:] for line in commands)
    login = ("--user", "ubuntu", "--identity", str(lab.stand.key))

    trusted = lab.bedplate(*trust)
    applied = lab.bedplate(*apply, *login[2:], "--role", "people")
    audited = lab.bedplate("node", "audit", NAME, *login, "--role", "people")

    assert (trusted.returncode, applied.returncode) == (0, 0), trusted.stderr + applied.stdout
    assert audited.returncode == 0, audited.stdout
    assert node.run("getent passwd ubuntu | cut -d: -f6").strip() == "/var/lib/ubuntu"


def test_the_script_can_run_again(node: Node, commands: Sequence[str]) -> None:
    """A second run prints the same commands, and changes no host key."""
    assert node.run("sh /root/first.sh").splitlines() == [*commands]
