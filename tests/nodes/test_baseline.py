"""The role `baseline` on a real machine: packages and services behave as is promised."""

import shlex
from collections.abc import Iterator

import pytest

from tests.testlab.machines.container import CommandError
from tests.testlab.machines.lab import recorded_lab
from tests.testlab.machines.operator import Operator
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# A repository like Debian's own for security, signed by a key that was made here; packages are stand-ins.
REPOSITORY = """
export GNUPGHOME=/srv/keys; mkdir -p -m 700 $GNUPGHOME; mkdir -p /srv/security; cd /srv/security
gpg --batch --quiet --passphrase '' --quick-generate-key security@lab.example ed25519 sign never
gpg --export > /usr/share/keyrings/sample.gpg
for name in {names}; do for version in 1 2; do
  mkdir -p /srv/$name/DEBIAN
  printf '%s\\n' "Package: $name" "Version: $version" 'Architecture: all' 'Maintainer: lab' 'Description: stand-in' \\
    > /srv/$name/DEBIAN/control
  dpkg-deb --build /srv/$name /srv/security/${{name}}_$version.deb > /dev/null
  [ $version = 2 ] || dpkg --install /srv/security/${{name}}_1.deb > /dev/null
done; done
apt-ftparchive packages . > Packages
apt-ftparchive -o APT::FTPArchive::Release::Origin=Debian -o APT::FTPArchive::Release::Label=Debian-Security \\
  -o APT::FTPArchive::Release::Codename=bookworm-security release . > Release
gpg --batch --clearsign --output InRelease Release
"""
SOURCE = "deb [signed-by=/usr/share/keyrings/sample.gpg] file:/srv/security ./"
HELD = ("libnvidia-sample", "linux-image-sample", "containerd-sample", "rdma-core")
# Two services run one program, which an upgrade then replaces under them.
SERVICES = """
for unit in kubelet containerd slurmd docker sample; do
  cp /bin/sleep /usr/bin/stand-in
  printf '[Service]\\nExecStart=/usr/bin/stand-in infinity\\n' > /etc/systemd/system/$unit.service
done
systemctl daemon-reload; systemctl start kubelet containerd slurmd docker sample
cp /bin/sleep /usr/bin/stand-in.new; mv /usr/bin/stand-in.new /usr/bin/stand-in
"""


@pytest.fixture(scope="module")
def operator(stand: Stand) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, recorded_lab(stand.folder))


@pytest.fixture(scope="module")
def node(stand: Stand, operator: Operator) -> Node:
    """Give a machine on which the role is in force."""
    booted = stand.boot(NAME, "192.168.40.21")
    assert operator.changes(NAME, "--role", "baseline")[NAME]
    return booted


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """What is in force is found to be so on a real machine."""
    assert operator.changes(NAME, "--role", "baseline") == {NAME: []}


def test_whoever_logs_in_is_told_where_and_whose(node: Node, stand: Stand) -> None:
    """The message of the day is what a login shows first."""
    login = ("ssh", "-tt", "-F", str(stand.ssh_config), node.name)

    told = stand.desk.run(*login, told="exit\n", seconds=60).stdout

    assert "titan-01.cellar.lab.internal" in told
    assert "owner: research-infra@lab.example" in told


@pytest.fixture
def alone(node: Node) -> Iterator[str]:
    """Set the machine's own sources aside until the test ends, and give the place of the only one."""
    node.run("mv /etc/apt/sources.list /srv/sources.list")
    yield "/etc/apt/sources.list.d/sample.list"
    node.run("rm /etc/apt/sources.list.d/sample.list; mv /srv/sources.list /etc/apt/sources.list")


def test_a_source_that_is_not_signed_gives_nothing(node: Node, operator: Operator, alone: str) -> None:
    """Whoever trusts a source blindly finds it distrusted after the next apply, and its packages out of reach."""
    node.run("mkdir -p /srv/blind; touch /srv/blind/Packages")
    node.run(f"echo 'deb [trusted=yes] file:/srv/blind ./' > {alone}; apt-get update")

    changes = operator.changes(NAME, "--role", "baseline")[NAME]

    assert changes == [f"Signed sources in {alone}"]
    with pytest.raises(CommandError, match=r"is not signed|not have a Release file"):
        node.run("apt-get update")


def test_security_comes_by_itself_but_not_to_what_jobs_stand_on(node: Node, alone: str) -> None:
    """A night's upgrade takes what is new in security's archive, and leaves drivers, kernels, containers, fabrics."""
    names = ("sample", *HELD)
    node.run(REPOSITORY.format(names=shlex.join(names)))
    node.run(f"echo '{SOURCE}' > {alone}; apt-get update")

    node.run("unattended-upgrade --verbose", seconds=300)

    versions = node.run(f"dpkg-query --show --showformat '${{Package}} ${{Version}}\\n' {shlex.join(names)}")
    assert dict(line.split() for line in versions.splitlines()) == {"sample": "2", **dict.fromkeys(HELD, "1")}


def test_an_upgrade_restarts_services_but_none_that_runs_jobs(node: Node) -> None:
    """Whoever runs a program that was replaced is restarted by needrestart, but for what a job would die with."""
    node.run(SERVICES)
    asked = "systemctl show --property MainPID --value {}"
    before = {unit: node.run(asked.format(unit)) for unit in ("kubelet", "containerd", "slurmd", "docker", "sample")}

    node.run("DEBIAN_FRONTEND=noninteractive needrestart -r a -l", seconds=300)

    changed = {unit for unit, pid in before.items() if node.run(asked.format(unit)) != pid}
    assert changed == {"sample"}


def test_what_was_changed_by_hand_is_changed_back(node: Node, operator: Operator) -> None:
    """An apply finds drift of files and of the running kernel, and mends just that."""
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


def test_the_ground_outlives_a_boot(node: Node) -> None:
    """Name, limits and journal are there again, and the journal remembers the boot before."""
    node.restart()

    assert node.run("hostname").strip() == "titan-01"
    assert node.run("systemctl show --property DefaultLimitMEMLOCK --value").strip() == "infinity"
    assert len(node.run("journalctl --list-boots --quiet").splitlines()) > 1
