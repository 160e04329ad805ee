"""A new machine of a site, from its installer to its first audit, by the commands that docs/nodes.md names."""

import shlex
from collections.abc import Sequence

import pytest

from tests.testlab.machines.lab import LabFolder, lab_folder
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# What an installer leaves: nobody who may become root, and no program by which anybody could.
_BARE = "userdel --remove ubuntu; rm /etc/sudoers.d/*; SUDO_FORCE_REMOVE=yes apt-get purge --yes --quiet sudo"


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give the machine as its installer left it."""
    made = stand.boot(NAME, "192.168.40.21")
    made.run(f"{_BARE} 2>&1")
    return made


@pytest.fixture(scope="module")
def lab(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> LabFolder:
    """Give the folder of a fleet whose lock knows no machine's key."""
    return lab_folder(stand, tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def told(node: Node, lab: LabFolder) -> Sequence[str]:
    """Give the commands with which the script ends that was run there as root, at the console."""
    (node.root / "root" / "first.sh").write_text(lab.bedplate("node", "bootstrap", NAME).stdout)
    return node.run("sh /root/first.sh", seconds=300).splitlines()


def test_the_script_ends_with_the_commands_that_come_next(node: Node, told: Sequence[str]) -> None:
    """With the fingerprint that the machine's own key has; sudo is there now, and the name is the plan's."""
    fingerprint = node.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2").strip()

    assert [*told] == [f"bedplate node trust {NAME} {fingerprint}", f"bedplate node apply {NAME} --user ubuntu"]
    assert node.run("hostname").strip() == "titan-01"


def test_what_it_says_is_what_configures_the_machine(node: Node, lab: LabFolder, told: Sequence[str]) -> None:
    """Its key is recorded, the first account comes in and becomes root, and the audit agrees."""
    trust, apply = (shlex.split(line)[1:] for line in told)
    way = ("--user", "ubuntu", "--identity", str(lab.stand.key))

    trusted = lab.bedplate(*trust)
    applied = lab.bedplate(*apply, *way[2:], "--role", "people")
    audited = lab.bedplate("node", "audit", NAME, *way, "--role", "people")

    assert (trusted.returncode, applied.returncode) == (0, 0), trusted.stderr + applied.stdout
    assert audited.returncode == 0, audited.stdout
    assert node.run("getent passwd ubuntu | cut -d: -f6").strip() == "/var/lib/ubuntu"


def test_it_may_be_run_again(node: Node, told: Sequence[str]) -> None:
    """Whoever is not sure whether it was run, runs it: it says the same, and changes no key of the machine's."""
    assert node.run("sh /root/first.sh").splitlines() == [*told]
