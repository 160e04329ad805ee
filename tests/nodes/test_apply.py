"""`bedplate node apply` on booted nodes: its changes, and its behavior on errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.machines.lab import QUICK, WORKBENCH, FleetFolder, make_fleet_folder, wait_for
from tests.testlab.machines.node_lab import Node, NodeLab

# Prints a digest of names, settings and packages, which an apply changes first.
_STATE = "hostname; ls -lR --full-time /etc /usr/local /opt | sha256sum; dpkg-query --list | sha256sum"
WRONG = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@dataclass(frozen=True)
class First:
    """Results for a fresh node: `--check` and the state after it, an apply to a full disk, the first apply."""

    checked: Mapping[str, Any]
    state: str
    full: Mapping[str, Any]
    applied: Mapping[str, Any]


@pytest.fixture(scope="module")
def first(fleet_folder: FleetFolder, node: Node) -> First:
    """Check and apply a fresh node; tests with this fixture get an applied node."""
    checked = fleet_folder.outcome(WORKBENCH, "--check")
    state = node.run("hostname; ls -d /var/lib/bedplate 2>/dev/null || true").strip()
    full = apply_on_full_disk(fleet_folder, node)
    return First(checked, state, full, fleet_folder.outcome(WORKBENCH))


def apply_on_full_disk(lab: FleetFolder, node: Node) -> Mapping[str, Any]:
    """Apply while /var is full; return the result, and whether the node is unchanged."""
    # The test node's image has all packages; without one of them in dpkg's list, roles must install it.
    node.run("mount -t tmpfs -o size=100m tmpfs /mnt; mkdir /mnt/lib; cp -a /var/lib/dpkg /mnt/lib")
    node.run("sed -i '/^Package: cmake$/,/^$/d' /mnt/lib/dpkg/status")
    node.run("mount --bind /mnt /var; dd if=/dev/zero of=/var/fill bs=4k 2>/dev/null || true")
    before = node.run(_STATE)
    result = lab.outcome(WORKBENCH)
    after = node.run(_STATE)
    node.run("umount --lazy /var; umount --lazy /mnt")
    return {**result, "is_unchanged": before == after}


def test_apply_makes_the_checked_changes_once(first: First, fleet_folder: FleetFolder, node: Node) -> None:
    """An apply makes the changes that `--check` showed; a second apply changes nothing."""
    second = fleet_folder.outcome(WORKBENCH)
    after = fleet_folder.outcome(WORKBENCH, "--check")

    assert (first.checked["status"], first.state) == (3, "fresh")
    assert first.checked[WORKBENCH]["changed"]
    assert (first.applied["status"], first.applied[WORKBENCH]["what"]) == (0, "")
    # Packages bring some files themselves, so an apply can have fewer changes than a check.
    assert set(first.applied[WORKBENCH]["changed"]) <= set(first.checked[WORKBENCH]["changed"])
    assert (second["status"], second[WORKBENCH]["changed"]) == (0, [])
    assert (after["status"], after[WORKBENCH]["changed"]) == (0, [])
    assert node.run("hostname").strip() == "titan-03"


@pytest.mark.usefixtures("first")
def test_drift_is_reported_and_reverted(fleet_folder: FleetFolder, node: Node) -> None:
    """A manual change is reported as its operation, and the next apply reverts it."""
    node.run("hostname drifted")

    check, applied = fleet_folder.outcome(WORKBENCH, "--check"), fleet_folder.outcome(WORKBENCH)

    assert check["status"] == 3
    assert check[WORKBENCH]["changed"] == applied[WORKBENCH]["changed"]
    assert applied[WORKBENCH]["changed"] == ["Set the host name"]
    assert node.run("hostname").strip() == "titan-03"


def test_first_apply_is_refused_on_a_full_disk(first: First) -> None:
    """An apply to a full disk names the file system and the required space, and changes nothing."""
    assert (first.full["status"], first.full[WORKBENCH]["status"], first.full[WORKBENCH]["changed"]) == (
        6,
        "refused",
        [],
    )
    assert "/var has 0 MiB free" in first.full[WORKBENCH]["what"]
    assert first.full[WORKBENCH]["fix"]
    assert first.full["is_unchanged"]


def test_written_ssh_config_logs_in(fleet_folder: FleetFolder, node_lab: NodeLab, tmp_path: Path) -> None:
    """`ssh titan-03` works with the written SSH configuration and the recorded host key."""
    file = tmp_path / "lab"
    fleet_folder.bedplate(
        "node", "ssh-config", "--write", str(file), "--user", "ubuntu", "--identity", str(node_lab.key)
    )

    done = node_lab.workstation.run("ssh", "-F", str(file), "-o", "BatchMode=yes", "titan-03", "hostname")

    assert done.stdout.strip() == "titan-03", done.stderr


def test_node_is_trusted_by_its_console_fingerprint(
    fleet_folder: FleetFolder, node: Node, node_lab: NodeLab, tmp_path: Path
) -> None:
    """`bedplate node trust` with the fingerprint of the console records the node's host key."""
    other = make_fleet_folder(node_lab, tmp_path)
    fingerprint = node.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2").strip()

    done = other.bedplate("node", "trust", WORKBENCH, fingerprint)

    assert done.returncode == 0, done.stderr
    assert other.outcome(WORKBENCH, "--check", *QUICK)["status"] in (0, 3)
    assert fleet_folder.bedplate("node", "trust", WORKBENCH, fingerprint).returncode == 0


def test_another_host_key_is_refused(node_lab: NodeLab, node: Node, tmp_path: Path) -> None:
    """A node with another host key than the recorded one is refused, with a fix."""
    other = make_fleet_folder(node_lab, tmp_path)
    other.trust(node, WRONG)

    result = other.outcome(WORKBENCH)

    assert (result["status"], result[WORKBENCH]["status"]) == (6, "refused")
    assert "host key differs from the recorded key" in result[WORKBENCH]["what"]
    assert "--replace" in result[WORKBENCH]["fix"]


def test_unreachable_node_does_not_stop_others(fleet_folder: FleetFolder, node_lab: NodeLab, node: Node) -> None:
    """A node that does not answer is reported, and the other nodes are applied."""
    fleet_folder.trust(
        Node("titan-02.cellar", node.address, node.host_key, node.machine, node_lab.workstation, node_lab.ssh_config)
    )

    result = fleet_folder.outcome("titan-02.cellar", WORKBENCH, *QUICK)

    assert result["status"] == 6
    assert (result["titan-02.cellar"]["status"], result[WORKBENCH]["status"]) == ("not reached", "done")
    assert result["titan-02.cellar"]["what"] == "no response on the SSH port"


@pytest.mark.nightly
def test_account_without_sudo_is_reported(fleet_folder: FleetFolder, node: Node, node_lab: NodeLab) -> None:
    """An account without sudo is reported with sudo's reason."""
    node.run(
        "id plain 2>/dev/null || useradd -m -d /var/lib/plain plain;"
        "install -D -m 644 ~ubuntu/.ssh/authorized_keys /etc/ssh/authorized_keys.d/plain"
    )

    result = fleet_folder.outcome(WORKBENCH, *QUICK, user="plain")

    assert result["status"] == 6
    assert "sudo" in result[WORKBENCH]["what"] or "become root" in result[WORKBENCH]["what"]


@pytest.mark.usefixtures("drifted")
@pytest.mark.nightly
def test_busy_package_manager_is_awaited(fleet_folder: FleetFolder, node: Node) -> None:
    """An apply waits for another program that installs packages."""
    holder = (
        "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(250)"
    )
    node.run(f'systemd-run --quiet --collect --unit=busy python3 -c "{holder}"; sleep 1')

    with fleet_folder.start_apply(WORKBENCH, *QUICK) as process:
        wait_for(process, "waits for another program that holds the package lock")
        node.run("systemctl stop busy")
        _, stderr = process.communicate(timeout=200)

    assert process.returncode == 0, stderr


@pytest.mark.usefixtures("drifted")
@pytest.mark.nightly
def test_interrupted_package_manager_is_repaired(fleet_folder: FleetFolder, node: Node) -> None:
    """If dpkg is killed between unpacking and configuring, the apply reports it, and the next one continues."""
    # Packages call this script before they start a service; here it kills dpkg.
    policy = "#!/bin/sh\nrm -f /usr/sbin/policy-rc.d\nkill -KILL $(pidof dpkg)\n"
    node.run(f"printf '{policy}' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d")

    failed = fleet_folder.outcome(WORKBENCH, *QUICK)
    unfinished = node.run("dpkg --audit; ls -A /var/lib/dpkg/updates")
    repaired = fleet_folder.outcome(WORKBENCH, *QUICK)

    assert failed["status"] == 6
    assert "dpkg was interrupted" in failed[WORKBENCH]["what"]
    assert "prometheus-node-exporter" in unfinished
    assert repaired["status"] == 0
    assert node.run("dpkg --audit; ls -A /var/lib/dpkg/updates") == ""
    assert node.run("systemctl is-active prometheus-node-exporter").strip() == "active"


@pytest.mark.usefixtures("drifted")
@pytest.mark.nightly
def test_unreachable_archive_is_reported(fleet_folder: FleetFolder, node: Node) -> None:
    """An unreachable package archive is reported, and a later apply completes the work."""
    node.run("apt-get clean; cp /etc/resolv.conf /root/; echo nameserver 127.0.0.9 > /etc/resolv.conf")
    node.run("mkdir -p /root/apt; cp -a /etc/apt/apt.conf.d /root/apt/; rm -f /etc/apt/apt.conf.d/90mirror")
    failed = fleet_folder.outcome(WORKBENCH, *QUICK)
    node.run("cp /root/resolv.conf /etc/; cp -a /root/apt/apt.conf.d /etc/apt/")

    repaired = fleet_folder.outcome(WORKBENCH, *QUICK)

    assert failed["status"] == 6
    assert "cannot reach a package repository" in failed[WORKBENCH]["what"]
    assert repaired["status"] == 0


@pytest.mark.usefixtures("first")
@pytest.mark.nightly
def test_full_disk_is_reported(fleet_folder: FleetFolder, node: Node) -> None:
    """On a full disk no file is written partially, and the message says what to do."""
    folder = "/etc/bedplate/wanted"
    node.run(f"mount -t tmpfs -o size=4k tmpfs {folder}; dd if=/dev/zero of={folder}/fill bs=4k count=1")

    result = fleet_folder.outcome(WORKBENCH, "--role", "hardened")
    files = node.run(f"ls -A {folder}").split()
    node.run(f"umount {folder}")

    assert result["status"] == 6
    assert "disk full" in result[WORKBENCH]["what"]
    assert files == ["fill"]
    assert fleet_folder.outcome(WORKBENCH, "--role", "hardened")["status"] == 0


@pytest.mark.usefixtures("first")
@pytest.mark.nightly
def test_apply_is_refused_if_run_is_full(fleet_folder: FleetFolder, node: Node) -> None:
    """An apply is refused if /run is full: systemd could not reload units, and packages would install partially."""
    node.run("hostname drifted; dd if=/dev/zero of=/run/fill bs=64k 2>/dev/null || true")

    checked = fleet_folder.outcome(WORKBENCH, "--check", "--role", "baseline")
    result = fleet_folder.outcome(WORKBENCH, "--role", "baseline")
    node.run("rm /run/fill")

    assert checked[WORKBENCH]["changed"] == ["Set the host name"]
    assert (result["status"], result[WORKBENCH]["status"], result[WORKBENCH]["changed"]) == (6, "refused", [])
    # The node's own services may remove a file from /run meanwhile.
    assert re.search(r"/run has [012] MiB free, 16 MiB required", result[WORKBENCH]["what"])
    assert fleet_folder.outcome(WORKBENCH, "--role", "baseline")["status"] == 0


def test_second_apply_is_refused_while_one_runs(fleet_folder: FleetFolder, node: Node) -> None:
    """While an apply runs, a second one exits with 5, names its owner and changes nothing."""
    node.run(
        "systemd-run --quiet --collect --unit=beat sh -c 'while :; do touch /run/bedplate/apply.lock; sleep 1; done'"
    )
    node.run("echo 'grace on her desk' > /run/bedplate/apply.lock")
    node.run("systemd-run --quiet --collect --unit=held flock /run/bedplate/apply.lock sleep 60; sleep 1")

    result = fleet_folder.outcome(WORKBENCH)
    node.run("systemctl stop held beat")

    assert result["status"] == 5
    assert "grace on her desk" in result[WORKBENCH]["what"]


@pytest.mark.usefixtures("first")
def test_filter_that_locks_the_operator_out_is_reverted(fleet_folder: FleetFolder, node: Node) -> None:
    """A packet filter that locks the operator out is not confirmed, so the node restores the previous one."""
    before = fleet_folder.fleet.read_text()
    fleet_folder.edit(r"lan: 192\.168\.40\.0/22", "lan: 192.168.40.0/23")
    fleet_folder.record("site/cellar")

    result = fleet_folder.outcome(WORKBENCH, "--role", "hardened")
    fleet_folder.fleet.write_text(before)
    fleet_folder.record("site/cellar")

    assert result["status"] == 6
    assert "no login is possible" in result[WORKBENCH]["what"]
    # The node's timer does this after two minutes.
    node.run("bedplate-trial back")
    assert node.ssh("true").returncode == 0
    assert fleet_folder.outcome(WORKBENCH)["status"] == 0


@pytest.mark.usefixtures("first")
@pytest.mark.nightly
def test_wrong_key_of_the_operator_is_reverted(fleet_folder: FleetFolder, node: Node, node_lab: NodeLab) -> None:
    """A wrong key of the operator is not confirmed, so the node restores the previous key."""
    before = fleet_folder.fleet.read_text()
    key = " ".join(node_lab.key.with_name("operator.pub").read_text().split()[:2])
    fleet_folder.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{key}"]')
    with_right_key = fleet_folder.outcome(WORKBENCH, "--role", "people")
    fleet_folder.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{WRONG}"]')

    result = fleet_folder.outcome(WORKBENCH, "--role", "people", user="ada")
    # The node's timer does this after two minutes.
    node.run("bedplate-trial-people back")
    login = node.ssh("sudo -n true", user="ada")
    fleet_folder.fleet.write_text(before)

    assert with_right_key["status"] == 0
    assert (result["status"], result[WORKBENCH]["status"]) == (6, "failed")
    assert "no login is possible" in result[WORKBENCH]["what"]
    assert login.returncode == 0, login.stderr
    assert fleet_folder.outcome(WORKBENCH)["status"] == 0
