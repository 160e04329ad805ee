"""The role `baseline` on a booted node: package sources, upgrades, limits and drift."""

import shlex
from collections.abc import Iterator

import pytest

from tests.testlab.machines.container import CommandError
from tests.testlab.machines.lab import write_recorded_fleet
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# A repository like Debian's security archive, with a new signing key and empty packages.
REPOSITORY = """
export GNUPGHOME=/srv/keys; mkdir -p -m 700 $GNUPGHOME; mkdir -p /srv/security; cd /srv/security
gpg --batch --quiet --passphrase '' --quick-generate-key security@lab.example ed25519 sign never
gpg --export > /usr/share/keyrings/sample.gpg
for name in {names}; do for version in 1 2; do
  mkdir -p /srv/$name/DEBIAN
  printf '%s\\n' "Package: $name" "Version: $version" 'Architecture: all' 'Maintainer: lab' 'Description: test' \\
    > /srv/$name/DEBIAN/control
  dpkg-deb --build /srv/$name /srv/security/${{name}}_$version.deb > /dev/null
  [ $version = 2 ] || dpkg --install /srv/security/${{name}}_1.deb > /dev/null
done; done
apt-ftparchive packages . > Packages
apt-ftparchive -o APT::FTPArchive::Release::Origin=Debian -o APT::FTPArchive::Release::Label=Debian-Security \\
  -o APT::FTPArchive::Release::Codename={release}-security release . > Release
gpg --batch --clearsign --output InRelease Release
"""
SOURCE = "deb [signed-by=/usr/share/keyrings/sample.gpg] file:/srv/security ./"
HELD = ("libnvidia-sample", "linux-image-sample", "containerd-sample", "rdma-core")
# Several services run one program, which an upgrade then replaces.
SERVICES = """
for unit in kubelet containerd slurmd docker sample; do
  cp /bin/sleep /usr/bin/test-daemon
  printf '[Service]\\nType=exec\\nExecStart=/usr/bin/test-daemon infinity\\n' > /etc/systemd/system/$unit.service
done
systemctl daemon-reload; systemctl start kubelet containerd slurmd docker sample
cp /bin/sleep /usr/bin/test-daemon.new; mv /usr/bin/test-daemon.new /usr/bin/test-daemon
"""


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab) -> Operator:
    """Return the operator of the lab."""
    return Operator(node_lab, write_recorded_fleet(node_lab.folder))


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, operator: Operator) -> Node:
    """Return a node with the role applied."""
    booted = node_lab.boot(NAME, "192.168.40.21")
    assert operator.changes(NAME, "--role", "baseline")[NAME]
    return booted


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """A second apply changes nothing."""
    assert operator.changes(NAME, "--role", "baseline") == {NAME: []}


def test_login_shows_name_and_owner(node: Node, node_lab: NodeLab) -> None:
    """A login shows the node's name and its owner."""
    login = ("ssh", "-tt", "-F", str(node_lab.ssh_config), node.name)

    output = node_lab.workstation.run(*login, stdin="exit\n", seconds=60).stdout

    assert "titan-01.cellar.lab.internal" in output
    assert "owner: research-infra@lab.example" in output


@pytest.fixture
def only_source(node: Node) -> Iterator[str]:
    """Move the node's sources away during the test, and return the path of the only source."""
    node.run("mv /etc/apt/sources.list /srv/sources.list")
    yield "/etc/apt/sources.list.d/sample.list"
    node.run("rm /etc/apt/sources.list.d/sample.list; mv /srv/sources.list /etc/apt/sources.list")


def test_unsigned_source_provides_nothing(node: Node, operator: Operator, only_source: str) -> None:
    """An apply removes the trust in an unsigned source, and apt refuses its packages."""
    node.run("mkdir -p /srv/blind; touch /srv/blind/Packages")
    node.run(f"echo 'deb [trusted=yes] file:/srv/blind ./' > {only_source}; apt-get update")

    changes = operator.changes(NAME, "--role", "baseline")[NAME]

    assert changes == [f"Require signatures in {only_source}"]
    with pytest.raises(CommandError, match=r"is not signed|not have a Release file"):
        node.run("apt-get update")


def test_security_upgrades_skip_job_packages(node: Node, only_source: str) -> None:
    """An automatic upgrade installs security updates, but no drivers, kernels, container runtimes or fabrics."""
    names = ("sample", *HELD)
    node.run(REPOSITORY.format(release=RELEASE, names=shlex.join(names)))
    node.run(f"echo '{SOURCE}' > {only_source}; apt-get update")

    node.run("unattended-upgrade --verbose", seconds=300)

    versions = node.run(f"dpkg-query --show --showformat '${{Package}} ${{Version}}\\n' {shlex.join(names)}")
    assert dict(line.split() for line in versions.splitlines()) == {"sample": "2", **dict.fromkeys(HELD, "1")}


def test_upgrades_restart_no_job_services(node: Node) -> None:
    """Needrestart restarts services whose program was replaced, except those that run jobs."""
    node.run(SERVICES)
    command = "systemctl show --property MainPID --value {}"
    before = {unit: node.run(command.format(unit)) for unit in ("kubelet", "containerd", "slurmd", "docker", "sample")}

    node.run("DEBIAN_FRONTEND=noninteractive needrestart -r a -l", seconds=300)

    changed = {unit for unit, pid in before.items() if node.run(command.format(unit)) != pid}
    assert changed == {"sample"}


def test_manual_changes_are_reverted(node: Node, operator: Operator) -> None:
    """An apply finds manual changes of files and of the running kernel, and reverts only these."""
    node.run("echo 'SystemMaxUse=9G' >> /etc/systemd/journald.conf.d/60-bedplate.conf; sysctl -qw vm.swappiness=60")
    node.run("hostname other; chmod 666 /etc/hosts")

    changes = operator.changes(NAME, "--role", "baseline")[NAME]

    assert changes == [
        "Write /etc/hosts",
        "Limit the size of the journal",
        "Set the host name",
        "Restart systemd-journald",
        "Reload sysctl settings",
    ]
    assert node.run("sysctl -n vm.swappiness").strip() == "1"


def test_settings_survive_a_reboot(node: Node) -> None:
    """Name, limits and the journal survive a reboot."""
    # Not by the list of boots: a container may have the boot ID of its host twice.
    node.run("echo before the reboot | systemd-cat --identifier mark; journalctl --sync")

    node.restart()

    assert node.run("hostname").strip() == "titan-01"
    assert node.run("systemctl show --property DefaultLimitMEMLOCK --value").strip() == "infinity"
    assert node.run("journalctl --quiet --identifier mark --output cat").strip() == "before the reboot"
