"""`bedplate node apply` on booted machines: what it makes of them, and what happens when something is in its way."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.machines.lab import BENCH, QUICK, LabFolder, lab_folder, wait_for
from tests.testlab.machines.stand import Node, Stand

# What an apply changes first: names, settings, packages.
_STATE = "hostname; ls -lR --full-time /etc /usr/local /opt | sha256sum; dpkg-query --list | sha256sum"
WRONG = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@dataclass(frozen=True)
class First:
    """What a look at a fresh machine told, what it left, what was told of a full disk, and what the first apply did."""

    foretold: Mapping[str, Any]
    untouched: str
    full: Mapping[str, Any]
    done: Mapping[str, Any]


@pytest.fixture(scope="module")
def first(lab_of_one: LabFolder, node: Node) -> First:
    """Apply once; whoever asks for this finds the machine as it ought to be."""
    foretold = lab_of_one.outcome(BENCH, "--check")
    untouched = node.run("hostname; ls -d /var/lib/bedplate 2>/dev/null || true").strip()
    full = on_a_full_disk(lab_of_one, node)
    return First(foretold, untouched, full, lab_of_one.outcome(BENCH))


def on_a_full_disk(lab: LabFolder, node: Node) -> Mapping[str, Any]:
    """Apply while /var is full to the last block; return what was told, with what there was of a change after it."""
    # What dpkg knows of is asked for by roles; the test node's root has what a machine's first apply would bring.
    node.run("mount -t tmpfs -o size=100m tmpfs /mnt; mkdir /mnt/lib; cp -a /var/lib/dpkg /mnt/lib")
    node.run("sed -i '/^Package: cmake$/,/^$/d' /mnt/lib/dpkg/status")
    node.run("mount --bind /mnt /var; dd if=/dev/zero of=/var/fill bs=4k 2>/dev/null || true")
    before = node.run(_STATE)
    told = lab.outcome(BENCH)
    after = node.run(_STATE)
    node.run("umount --lazy /var; umount --lazy /mnt")
    return {**told, "is_untouched": before == after}


def test_an_apply_does_what_a_check_said_and_a_second_changes_nothing(
    first: First, lab_of_one: LabFolder, node: Node
) -> None:
    """A fresh machine becomes what the plan says, by every role that it has."""
    second = lab_of_one.outcome(BENCH)
    after = lab_of_one.outcome(BENCH, "--check")

    assert (first.foretold["status"], first.untouched) == (3, "fresh")
    assert first.foretold[BENCH]["changed"]
    assert (first.done["status"], first.done[BENCH]["what"]) == (0, "")
    # What a package brings by itself is found in its place by then.
    assert set(first.done[BENCH]["changed"]) <= set(first.foretold[BENCH]["changed"])
    assert (second["status"], second[BENCH]["changed"]) == (0, [])
    assert (after["status"], after[BENCH]["changed"]) == (0, [])
    assert node.run("hostname").strip() == "titan-03"


@pytest.mark.usefixtures("first")
def test_drift_is_found_and_mended(lab_of_one: LabFolder, node: Node) -> None:
    """What somebody changed by hand is told by its name, and is as it ought to be after the next apply."""
    node.run("hostname drifted")

    check, mended = lab_of_one.outcome(BENCH, "--check"), lab_of_one.outcome(BENCH)

    assert check["status"] == 3
    assert check[BENCH]["changed"] == mended[BENCH]["changed"]
    assert mended[BENCH]["changed"] == ["Set the host name"]
    assert node.run("hostname").strip() == "titan-03"


def test_a_first_apply_finds_no_room(first: First) -> None:
    """It is told which file system is full and what it takes, before anything is begun, and nothing is half done."""
    assert (first.full["status"], first.full[BENCH]["status"], first.full[BENCH]["changed"]) == (6, "refused", [])
    assert "/var has 0 MB free, and 350 are needed" in first.full[BENCH]["what"]
    assert "make room" in first.full[BENCH]["fix"]
    assert first.full["is_untouched"]


def test_an_operator_logs_in_by_the_written_configuration(lab_of_one: LabFolder, stand: Stand, tmp_path: Path) -> None:
    """`ssh titan-03` works, by the recorded host key alone."""
    file = tmp_path / "lab"
    lab_of_one.bedplate("node", "ssh-config", "--write", str(file), "--user", "ubuntu", "--identity", str(stand.key))

    done = stand.desk.run("ssh", "-F", str(file), "-o", "BatchMode=yes", "titan-03", "hostname")

    assert done.stdout.strip() == "titan-03", done.stderr


def test_a_machine_is_trusted_by_the_fingerprint_of_its_console(
    lab_of_one: LabFolder, node: Node, stand: Stand, tmp_path: Path
) -> None:
    """And its recorded key is the one that it has."""
    other = lab_folder(stand, tmp_path)
    read = node.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2").strip()

    done = other.bedplate("node", "trust", BENCH, read)

    assert done.returncode == 0, done.stderr
    assert other.outcome(BENCH, "--check", *QUICK)["status"] in (0, 3)
    assert lab_of_one.bedplate("node", "trust", BENCH, read).returncode == 0


def test_another_host_key_is_refused(stand: Stand, node: Node, tmp_path: Path) -> None:
    """Somebody may be in between: nothing is sent, and it is told what to compare."""
    other = lab_folder(stand, tmp_path)
    other.know(node, WRONG)

    found = other.outcome(BENCH)

    assert (found["status"], found[BENCH]["status"]) == (6, "refused")
    assert "host key differs from the recorded key" in found[BENCH]["what"]
    assert "--replace" in found[BENCH]["fix"]


def test_a_machine_that_is_silent_is_named_and_the_others_are_done(
    lab_of_one: LabFolder, stand: Stand, node: Node
) -> None:
    """One that is off keeps nobody waiting for long."""
    lab_of_one.know(Node("titan-02.cellar", node.address, node.host_key, node.machine, stand.desk, stand.ssh_config))

    found = lab_of_one.outcome("titan-02.cellar", BENCH, *QUICK)

    assert found["status"] == 6
    assert (found["titan-02.cellar"]["status"], found[BENCH]["status"]) == ("not reached", "done")
    assert found["titan-02.cellar"]["what"] == "no response on the SSH port"


def test_an_account_that_may_not_become_root_is_told(lab_of_one: LabFolder, node: Node, stand: Stand) -> None:
    """By what sudo says, in words that say what to do."""
    node.run(
        "id plain 2>/dev/null || useradd -m -d /var/lib/plain plain;"
        "install -D -m 644 ~ubuntu/.ssh/authorized_keys /etc/ssh/authorized_keys.d/plain"
    )

    found = lab_of_one.outcome(BENCH, *QUICK, user="plain")

    assert found["status"] == 6
    assert "sudo" in found[BENCH]["what"] or "become root" in found[BENCH]["what"]


@pytest.mark.usefixtures("drifted")
def test_a_package_manager_that_is_busy_is_waited_for(lab_of_one: LabFolder, node: Node) -> None:
    """Unattended upgrades run when they like."""
    holder = (
        "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(250)"
    )
    node.run(f'systemd-run --quiet --collect --unit=busy python3 -c "{holder}"; sleep 1')

    with lab_of_one.applying(BENCH, *QUICK) as running:
        wait_for(running, "waits for another program that holds the package lock")
        node.run("systemctl stop busy")
        _, said = running.communicate(timeout=200)

    assert running.returncode == 0, said


@pytest.mark.usefixtures("drifted")
def test_an_interrupted_package_manager_is_mended(lab_of_one: LabFolder, node: Node) -> None:
    """Where dpkg dies between unpacking and configuring, the apply says so, and the next one configures and goes on."""
    # What packages ask before they start a service; it is asked by dpkg's own child.
    dying = "#!/bin/sh\nrm -f /usr/sbin/policy-rc.d\nkill -KILL $(pidof dpkg)\n"
    node.run(f"printf '{dying}' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d")

    failed = lab_of_one.outcome(BENCH, *QUICK)
    left = node.run("dpkg --audit; ls -A /var/lib/dpkg/updates")
    mended = lab_of_one.outcome(BENCH, *QUICK)

    assert failed["status"] == 6
    assert "ended in the middle of its work" in failed[BENCH]["what"]
    assert "prometheus-node-exporter" in left
    assert mended["status"] == 0
    assert node.run("dpkg --audit; ls -A /var/lib/dpkg/updates") == ""
    assert node.run("systemctl is-active prometheus-node-exporter").strip() == "active"


@pytest.mark.usefixtures("drifted")
def test_an_archive_that_is_gone_is_told_and_a_later_apply_makes_it_good(lab_of_one: LabFolder, node: Node) -> None:
    """The operation is named, and what could not be fetched."""
    node.run("apt-get clean; cp /etc/resolv.conf /root/; echo nameserver 127.0.0.9 > /etc/resolv.conf")
    node.run("mkdir -p /root/apt; cp -a /etc/apt/apt.conf.d /root/apt/; rm -f /etc/apt/apt.conf.d/90mirror")
    failed = lab_of_one.outcome(BENCH, *QUICK)
    node.run("cp /root/resolv.conf /etc/; cp -a /root/apt/apt.conf.d /etc/apt/")

    mended = lab_of_one.outcome(BENCH, *QUICK)

    assert failed["status"] == 6
    assert "cannot reach a package archive" in failed[BENCH]["what"]
    assert mended["status"] == 0


@pytest.mark.usefixtures("first")
def test_a_full_disk_is_told(lab_of_one: LabFolder, node: Node) -> None:
    """No file is half written, and what to do is said."""
    folder = "/etc/bedplate/wanted"
    node.run(f"mount -t tmpfs -o size=4k tmpfs {folder}; dd if=/dev/zero of={folder}/fill bs=4k count=1")

    found = lab_of_one.outcome(BENCH, "--role", "hardened")
    left = node.run(f"ls -A {folder}").split()
    node.run(f"umount {folder}")

    assert found["status"] == 6
    assert "disk full" in found[BENCH]["what"]
    assert left == ["fill"]
    assert lab_of_one.outcome(BENCH, "--role", "hardened")["status"] == 0


@pytest.mark.usefixtures("first")
def test_a_full_run_is_told_by_its_name(lab_of_one: LabFolder, node: Node) -> None:
    """Without room there systemd reads no unit anew, and packages half install: nothing is begun."""
    node.run("hostname drifted; dd if=/dev/zero of=/run/fill bs=64k 2>/dev/null || true")

    foretold = lab_of_one.outcome(BENCH, "--check", "--role", "baseline")
    found = lab_of_one.outcome(BENCH, "--role", "baseline")
    node.run("rm /run/fill")

    assert foretold[BENCH]["changed"] == ["Set the host name"]
    assert (found["status"], found[BENCH]["status"], found[BENCH]["changed"]) == (6, "refused", [])
    assert "/run has 0 MiB free, 16 MiB required" in found[BENCH]["what"]
    assert lab_of_one.outcome(BENCH, "--role", "baseline")["status"] == 0


def test_of_two_applies_one_wins(lab_of_one: LabFolder, node: Node) -> None:
    """The other is told who has it, and changes nothing; 5 says so."""
    node.run(
        "systemd-run --quiet --collect --unit=beat sh -c 'while :; do touch /run/bedplate/apply.lock; sleep 1; done'"
    )
    node.run("echo 'grace on her desk' > /run/bedplate/apply.lock")
    node.run("systemd-run --quiet --collect --unit=held flock /run/bedplate/apply.lock sleep 60; sleep 1")

    found = lab_of_one.outcome(BENCH)
    node.run("systemctl stop held beat")

    assert found["status"] == 5
    assert "grace on her desk" in found[BENCH]["what"]


@pytest.mark.usefixtures("first")
def test_a_packet_filter_that_would_shut_us_out_goes_back_by_itself(lab_of_one: LabFolder, node: Node) -> None:
    """It is not confirmed, so that the node takes what it had before; the operator is told which operation it was."""
    before = lab_of_one.fleet.read_text()
    lab_of_one.edit(r"lan: 192\.168\.40\.0/22", "lan: 192.168.40.0/23")
    lab_of_one.record("site/cellar")

    found = lab_of_one.outcome(BENCH, "--role", "hardened")
    lab_of_one.fleet.write_text(before)
    lab_of_one.record("site/cellar")

    assert found["status"] == 6
    assert "no login is possible" in found[BENCH]["what"]
    # What its timer does after two minutes.
    node.run("bedplate-trial back")
    assert node.ssh("true").returncode == 0
    assert lab_of_one.outcome(BENCH)["status"] == 0


@pytest.mark.usefixtures("first")
def test_a_wrong_key_of_whoever_applies_goes_back_by_itself(lab_of_one: LabFolder, node: Node, stand: Stand) -> None:
    """Nobody comes in by it, so that the node takes the key of before; the accounts of others are left till then."""
    before = lab_of_one.fleet.read_text()
    key = " ".join(stand.key.with_name("operator.pub").read_text().split()[:2])
    lab_of_one.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{key}"]')
    right = lab_of_one.outcome(BENCH, "--role", "people")
    lab_of_one.edit(r"ada: \{admin: true, keys: \[[^]]*\]", f'ada: {{admin: true, keys: ["{WRONG}"]')

    found = lab_of_one.outcome(BENCH, "--role", "people", user="ada")
    # What its timer does after two minutes.
    node.run("bedplate-trial-people back")
    still = node.ssh("sudo -n true", user="ada")
    lab_of_one.fleet.write_text(before)

    assert right["status"] == 0
    assert (found["status"], found[BENCH]["status"]) == (6, "failed")
    assert "no login is possible" in found[BENCH]["what"]
    assert still.returncode == 0, still.stderr
    assert lab_of_one.outcome(BENCH)["status"] == 0
