"""The role `hardened`, on a node in memory."""

import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from bedplate.plan.door import Rule
from bedplate.plan.node import Duty
from roles.hardened.kernel import SYSCTL
from roles.hardened.modes import Modes, wanted
from roles.hardened.role import Hardened
from roles.hardened.trial import CONFIRM, SCRIPT
from roles.template import text_of
from tests.support.hardened import again, fresh
from tests.support.recorded import Lines, Recorded, recorded

SSH = Rule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
FIGURES = Rule("figures", "Figures", SSH.block, "tcp", 9100)
ROLE = Hardened(doors=(SSH,), duties=frozenset())
DEBIAN = recorded("debian-12")
TABLES = [DEBIAN, recorded("ubuntu-24.04")]
LATER = ["configure", "activate"]
ON_TRIAL = "Packet filter and sshd, on trial"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_bake_of_an_image_tries_nothing(table: Recorded) -> None:
    """Without a running system, files are written and nothing is put in force."""
    played = fresh(table).play(ROLE, stages=["install", "configure"])

    assert ON_TRIAL not in played.names
    assert "Kernel refuses strangers" not in played.names
    assert not [line for line in played.commands if "systemctl" in line and "is-active" not in line]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_is_wanted_is_written_and_tried_last(table: Recorded) -> None:
    """The texts lie where the trial finds them, readable by root alone, and the trial begins after all else."""
    played = fresh(table).play(ROLE)

    assert played.disk.entries["/etc/bedplate/wanted/filter.nft"].mode == 600
    assert "192.168.40.0/22" in played.written("/etc/bedplate/wanted/filter.nft")
    assert played.names[-1] == ON_TRIAL
    assert played.step(ON_TRIAL).commands == (f"{SCRIPT} begin 120",)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """What is in place and in force is left alone."""
    disk = fresh(table).play(ROLE).disk

    assert again(table, disk).play(ROLE, stages=LATER).changes == []


@pytest.mark.parametrize(
    ("fact", "answer", "mended"),
    [
        ("hardened.trial.InForce", None, ON_TRIAL),
        (
            "drop_ins.DropIns",
            ("/run/systemd/system/bedplate-filter.service.d",),
            "Units of the packet filter are as they are written",
        ),
        ("hardened.memory.Remountable", ("rw,nosuid",), "No programs in shared memory"),
        ("hardened.identity.Strength", ("rsa 3072", "short 0"), "Host key of 4096 bits"),
        ("hardened.identity.Strength", ("rsa", "short 0"), "Host key of 4096 bits"),
        ("hardened.identity.Strength", ("rsa 4096", "short 1"), "No short primes"),
        ("hardened.modes.Modes", ("644 root /etc/crontab",), "File modes"),
        ("sysctl.Settable", ("kernel.sysrq=1",), "Kernel refuses strangers"),
        ("sysctl.Settable", ("net.ipv6.conf.eth0.accept_ra=1",), "Kernel refuses strangers"),
    ],
    ids=["filter", "drop-in", "memory", "weak-key", "no-key", "primes", "modes", "kernel", "interface"],
)
def test_what_was_changed_by_hand_is_mended(fact: str, answer: Lines, mended: str) -> None:
    """Each drift is mended by one operation, and nothing else is done."""
    disk = fresh(DEBIAN).play(ROLE).disk

    played = again(DEBIAN, disk, {f"roles.{fact}": answer}).play(ROLE, stages=LATER)

    assert played.changes == [mended]


def test_what_lets_aws_s_keys_in_is_purged() -> None:
    """Canonical's images ask AWS for keys by an option of sshd, over which no file has a say; Debian's do not."""
    steps = ("No keys but the fleet's", "sshd without its former options")
    ubuntu, debian = (fresh(table).play(ROLE, stages=["install"]) for table in (recorded("ubuntu-24.04"), DEBIAN))

    purged, anew = (ubuntu.step(name).commands for name in steps)
    assert purged[0].endswith(" purge ec2-instance-connect")
    assert "systemctl restart ssh.service" in anew[0]
    assert not {*steps} & {*debian.changes}


@pytest.mark.parametrize(("path", "reloads"), [("/etc/ssh/sshd_config", True), ("/etc/crontab", False)])
def test_sshd_reads_a_file_anew_whose_mode_was_mended(path: str, *, reloads: bool) -> None:
    """The file has changed since the daemon read it, and the audit cannot tell a mode from a text."""
    disk = fresh(DEBIAN).play(ROLE).disk

    played = again(DEBIAN, disk, {"roles.hardened.modes.Modes": (f"644 root {path}",)}).play(ROLE, stages=LATER)

    assert any("reload ssh.service" in command for command in played.step("File modes").commands) is reloads


@pytest.mark.parametrize(("group", "mode"), [("syslog", "775"), ("root", "755")], ids=["ubuntu", "debian"])
def test_the_folder_of_logs_is_as_its_distribution_has_it(group: str, mode: str) -> None:
    """Ubuntu's rsyslog makes logs by its group, and systemd sets that mode at each boot; Debian's is root."""
    assert Modes().process([f"755 {group} /var/log"]) == {"/var/log": ("755", group)}
    assert wanted("/var/log", group) == mode
    assert wanted("/etc/crontab", group) == "600"


@pytest.mark.parametrize(
    ("doors", "written"),
    [((SSH,), ["Packet filter"]), ((FIGURES,), ["Packet filter of emergencies", "Packet filter"])],
    ids=["another", "ssh"],
)
def test_a_door_that_closes_changes_the_filter_alone(doors: tuple[Rule, ...], written: list[str]) -> None:
    """An edit of the plan's doors writes one file and begins a trial; SSH's are in that of emergencies, too."""
    disk = fresh(DEBIAN).play(Hardened(doors=(SSH, FIGURES), duties=frozenset())).disk
    shut = Hardened(doors=doors, duties=frozenset())

    played = again(DEBIAN, disk, {"roles.hardened.trial.InForce": None}).play(shut, stages=LATER)

    assert played.changes == [*written, ON_TRIAL]


@pytest.mark.parametrize(("machine", "bits"), [("x86_64", {"b64", "b32"}), ("aarch64", {"b64"})])
def test_calls_of_the_kernel_are_audited_in_each_form_that_the_machine_has(machine: str, bits: set[str]) -> None:
    """On x86_64 a program of 32 bits is another way to the same call; elsewhere auditctl might refuse the file."""
    table = DEBIAN.but({"server.Arch": (machine,)})
    text = fresh(table).play(ROLE, stages=LATER).written("/etc/audit/rules.d/50-bedplate.rules")

    calls = [line for line in text.splitlines() if line.startswith("-a ")]
    assert {line.split("arch=")[1].split()[0] for line in calls} == bits
    assert len(calls) == 5 * len(bits)


def test_the_host_key_by_which_the_node_is_known_stays() -> None:
    """Whoever recorded the key of type ed25519 is never refused after an apply."""
    played = fresh(DEBIAN).play(ROLE)

    assert not [line for line in played.commands if "ed25519" in line]


@pytest.mark.parametrize(
    ("duty", "refuses", "reverse"),
    [
        (Duty.FILES, True, "1"),
        (Duty.WORKBENCH, False, "1"),
        *((duty, False, "2") for duty in (Duty.WORKER, Duty.TUNNELS, Duty.LAPTOPS)),
    ],
)
def test_only_machines_that_pass_packets_on_may(duty: Duty, *, refuses: bool, reverse: str) -> None:
    """Forwarding is refused where nothing is forwarded, and answers may go another way only where something is.

    On a workbench it is the matter of what runs people's containers, which an apply must not turn off under them.
    """
    played = fresh(DEBIAN).play(Hardened(doors=(), duties=frozenset({duty})))
    text = played.written(SYSCTL)

    assert ("net.ipv4.ip_forward = 0" in text) is refuses
    assert f"net.ipv4.conf.all.rp_filter = {reverse}\n" in text


def test_no_file_of_the_distribution_is_read_after_ours() -> None:
    """Both distributions bring 99-protect-links.conf, which sets fs.protected_fifos back at each boot."""
    played = fresh(DEBIAN).play(Hardened(doors=(), duties=frozenset()))

    assert "fs.protected_fifos = 2\n" in played.written(SYSCTL)
    assert SYSCTL.rpartition("/")[2] > "99-sysctl.conf"


def test_a_fabric_may_answer_by_another_interface() -> None:
    """A machine with several interfaces on one network would drop its own packets under a strict filter."""
    played = fresh(DEBIAN).play(Hardened(doors=(), duties=frozenset(), fabric=True))

    assert "net.ipv4.conf.all.rp_filter = 2\n" in played.written(SYSCTL)


_SYSTEMCTL = """#!/bin/sh
echo "$*" >>{log}
case "$*" in
  *is-active\\ ssh.socket) {socket} ;;
  show*) if grep -q daemon-reload {log}; then echo "{after}"; else echo 0.0.0.0:22; fi ;;
  restart*) {restarts} ;;
esac
"""


@pytest.mark.parametrize(
    ("socket", "after", "restarts", "done"),
    [
        ("false", "", "true", ["reload ssh.service"]),
        ("true", "0.0.0.0:22", "true", ["daemon-reload", "reload ssh.service"]),
        ("true", "0.0.0.0:22 [::]:22", "true", ["daemon-reload", "stop ssh.service", "restart ssh.socket"]),
        (
            "true",
            "10.9.9.9:22",
            "false",
            ["daemon-reload", "stop ssh.service", "restart ssh.socket", "start ssh.service"],
        ),
    ],
    ids=["debian", "ubuntu", "ubuntu-elsewhere", "ubuntu-no-address"],
)
def test_a_socket_that_listens_in_sshds_place_listens_as_its_settings_say(
    socket: str, after: str, restarts: str, done: list[str], tmp_path: Path
) -> None:
    """Ubuntu's reads ports and addresses when systemd is told to; where it cannot listen there, sshd does by itself."""
    log, program = tmp_path / "log", tmp_path / "systemctl"
    program.write_text(_SYSTEMCTL.format(log=log, socket=socket, after=after, restarts=restarts))
    program.chmod(0o755)
    functions = text_of("hardened/bedplate-trial").partition("\ninstall -d -m 755 /run/bedplate ")[0]

    subprocess.run(["sh", "-c", f"PATH={tmp_path}:$PATH\n{functions}\nreload"], check=True)

    assert [line for line in log.read_text().splitlines() if "is-active" not in line and "show" not in line] == done


def test_shellcheck_finds_nothing_in_the_trial() -> None:
    """The program that goes back must not fail for a slip of the shell."""
    told = subprocess.run(
        [str(Path(sys.executable).parent / "shellcheck"), "-"],
        input=text_of("hardened/bedplate-trial"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.stdout == ""


def test_the_confirmation_is_the_program_that_the_role_ships() -> None:
    """Whoever applies confirms by the same program that would go back."""
    assert f"{SCRIPT} confirm" == CONFIRM


def test_su_asks_for_the_group_without_members() -> None:
    """The distribution's line of pam_wheel is set below pam_rootok; its other comments of that module go."""
    played = fresh(DEBIAN).play(ROLE)

    assert played.written("/etc/pam.d/su") == (
        "auth       sufficient pam_rootok.so\n"
        "auth       required   pam_wheel.so use_uid group=sugroup\n"
        "@include common-auth\n"
    )


def test_pam_takes_the_profiles_when_one_has_changed() -> None:
    """pam-auth-update runs once for new profiles, and not again."""
    first = fresh(DEBIAN).play(ROLE)
    disk = first.disk
    second = again(DEBIAN, disk).play(ROLE, stages=LATER)

    assert first.step("PAM guards passwords").commands == ("DEBIAN_FRONTEND=noninteractive pam-auth-update --package",)
    assert not second.step("PAM guards passwords").changed
