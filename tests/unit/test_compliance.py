"""The compliance rules without a node: parsers, shell backend, plugins, and the seeded defect of each rule."""

import os
import subprocess
import sys
import time
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.compliance.ledger import simplify_failure
from bedplate.compliance.settings import (
    SUDO_DEFAULTS,
    boot_deviations,
    parse_sysctl_files,
    sudo_deviations,
    unknown_accounts,
    unplanned_exports,
    weakens_audit,
)
from bedplate.compliance.shell import LocalBackend, NoAnswerError, ShellBackend
from bedplate.compliance.test_monitoring import test_node_exporter_listens_on_one_address as exporter_rule
from bedplate.errors import PartialError
from bedplate.nodes.apply import NodeError
from bedplate.nodes.audit import CHECKS, RuleOutcome, parse_findings, roles_checked
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import find_node
from roles.hardened import role
from roles.hardened.logins import IMAGE_ACCOUNTS
from roles.storage.mounts import EXPORTS, server_of
from tests.testlab.fakes.node import Recorded
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.defects import defects, rules
from tests.testlab.machines.sshd import running_server
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import ROOT

KNOWN_ACCOUNTS = {"root", *IMAGE_ACCOUNTS}


def _rows(system: Recorded) -> list[list[str]]:
    return [line.partition("|")[0].split(":") for line in system.answers["server.Users"] or ()]


def test_accounts_of_a_distribution_are_known(system: Recorded) -> None:
    """Accounts that every installation has are not reported."""
    assert len(_rows(system)) > 15
    assert unknown_accounts(_rows(system), KNOWN_ACCOUNTS) == []


@pytest.mark.parametrize(
    "row",
    [
        "toor:x:0:0::/root:/usr/sbin/nologin",
        "games:x:5:60:games:/usr/games:/bin/bash",
        "games:x:5:60:games:/usr/games:",
        "guest:x:1500:1500::/home/guest:/usr/sbin/nologin",
        "mole:x:70000:70000::/var/mole:/bin/false",
    ],
    ids=["ID of root", "shell", "default shell", "ID of a person", "large ID"],
)
def test_unknown_account_is_reported(row: str, system: Recorded) -> None:
    """An account is unknown if it has a shell, root's ID, or an ID above those of daemons."""
    name = row.partition(":")[0]
    rows = [fields for fields in _rows(system) if fields[0] != name]

    assert unknown_accounts([*rows, row.split(":")], KNOWN_ACCOUNTS) == [name]


def test_accounts_of_the_fleet_are_known(system: Recorded) -> None:
    """People of the fleet file are not reported."""
    ada = ["ada", "x", "20000", "20000", "", "/home/ada", "/bin/bash"]

    assert unknown_accounts([*_rows(system), ada], {*KNOWN_ACCOUNTS, "ada"}) == []


# The audit rules file of Debian and Ubuntu.
DISTRIBUTION_RULES = "## First rule - delete all\n-D\n\n-b 8192\n--backlog_wait_time 60000\n-f 1\n"


@pytest.mark.parametrize(
    "text",
    [
        role.rules("x86_64"),
        DISTRIBUTION_RULES,
        "-e 2\n",
        "-a exit,always -F arch=b64 -S execve\n-A always,user -F uid=0\n  # a comment\n",
    ],
    ids=["planned", "distribution", "locked", "additional"],
)
def test_additional_audit_rules_are_allowed(text: str) -> None:
    """Additional records, and rules that are locked until the next boot, do not weaken the audit."""
    assert [line for line in text.splitlines() if weakens_audit(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "-e 0",
        "-e0",
        " -D",
        "-D ",
        "-D -k identity",
        "-W /etc/shadow -p wa -k identity",
        "-d always,exit -F arch=b64 -S mount",
        "-a never,exit -F auid=1000",
        "-A exit,never -F dir=/etc",
        "-a always,exclude -F msgtype=SYSCALL",
        "-a never,user",
        "-r 1",
    ],
)
def test_weaker_audit_rule_is_reported(line: str) -> None:
    """Rules that disable, delete or exclude weaken the audit, also a `-D` with a space, which augenrules keeps."""
    assert weakens_audit(line)


(PLANNED,) = (
    file.text for file in server_of(lab_node("nas.cellar").shares, by_kernel=True).files if file.path == EXPORTS
)
# As exportfs of nfs-utils 2.6 writes them.
KERNEL_OPTIONS = (
    "rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,"
    "fsid=f2b4d1b5-7f9e-5f5e-9d5b-0c1f5f3a2b11,anonuid=65534,anongid=65534,sec=sys,rw,secure,root_squash,no_all_squash"
)


def kernel_table(text: str) -> str:
    """Return the kernel's export table for lines of exports(5)."""
    rows = [line.split() for line in text.splitlines() if line.startswith("/")]
    exports = ((path, client.partition("(")[0]) for path, *clients in rows for client in clients)
    return "".join(f"{path}\t{client}({KERNEL_OPTIONS})\n" for path, client in exports)


def test_planned_exports_are_allowed() -> None:
    """The planned exports are not reported, neither in the file nor in the kernel's table."""
    assert unplanned_exports(PLANNED, PLANNED) == []
    assert unplanned_exports(kernel_table(PLANNED), PLANNED) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/srv *(rw)", ["/srv to *"]),
        ("/srv/data", ["/srv/data to *"]),
        ("/srv/data (ro)", ["/srv/data to *"]),
        ("/srv/data \\\n  198.51.100.7(ro)", ["/srv/data to 198.51.100.7"]),
        ("/srv/data -no_root_squash", ["/srv/data to -no_root_squash"]),
        ("/srv/data {client}(rw,no_root_squash)", ["/srv/data to {client} no_root_squash"]),
        ("/srv/data {client}(rw,insecure,anonuid=0)", ["/srv/data to {client} insecure anonuid=0"]),
        (f"/srv/data\t198.51.100.7({KERNEL_OPTIONS})", ["/srv/data to 198.51.100.7"]),
    ],
    ids=["folder", "everyone", "no client", "two lines", "defaults", "root", "ports", "kernel table"],
)
def test_unplanned_export_is_reported(line: str, expected: list[str]) -> None:
    """An additional folder, an additional client, or unsafe options of a planned client are reported."""
    (row,) = (line for line in PLANNED.splitlines() if line.startswith("/srv/data "))
    client = row.split()[1].partition("(")[0]

    exports = unplanned_exports(line.replace("{client}", client), PLANNED)

    assert exports == [text.replace("{client}", client) for text in expected]


LAB = (EXAMPLES / "lab.yaml").read_text()
ALLOWED = "  E222: it was the lab's before\n"
# A workbench, and the laptop gateway, which is outside the subnets of nodes.
CLOUD_NODES = ("workbench-cpu-1.us-west-2", "laptops.us-west-2")


class ListeningHost:
    """A host that answers only the question for the sockets of node_exporter."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    def check_output(self, command: str, port: str) -> str:
        """Return the output of ss."""
        assert command.startswith("ss --listening")
        return "".join(f"LISTEN 0 4096 {address}:{port} 0.0.0.0:*\n" for address in self._addresses)


@pytest.fixture(scope="module", params=["10.64.0.0/10", "100.64.0.0/10"], ids=["private", "carrier"])
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    """Return the plan of the lab, in a private block or in the shared block of carriers."""
    fleet = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    fleet.write_text(f"{LAB.replace('10.64.0.0/10', request.param)}{ALLOWED}")
    return plan_of(fleet)


def is_kept(plan: FleetPlan, name: str, *addresses: str) -> bool:
    """Return whether a node whose exporter listens on these addresses keeps the rule."""
    try:
        exporter_rule(ListeningHost(*addresses), find_node(plan, name, load_catalog()), plan)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", CLOUD_NODES)
def test_exporter_can_use_an_address_of_the_region(name: str, plan: FleetPlan) -> None:
    """In the cloud, any address of the region's block is right, because AWS assigns it."""
    assert is_kept(plan, name, str(_address_in(plan.region("us-west-2").block)))


@pytest.mark.parametrize("name", CLOUD_NODES)
def test_exporter_on_another_address_is_a_violation(name: str, plan: FleetPlan) -> None:
    """Addresses of other regions, public ones, loopback, all addresses, a second one, and none violate the rule."""
    own, other = (str(_address_in(plan.region(region).block)) for region in ("us-west-2", "us-east-1"))

    for addresses in ((other,), ("8.8.8.8",), ("127.0.0.1",), ("0.0.0.0",), ("*",), ("[::]",), (own, own), ()):  # noqa: S104  output of ss
        assert not is_kept(plan, name, *addresses), addresses


def test_exporter_of_a_site_uses_the_planned_address(plan: FleetPlan) -> None:
    """On a site, only the address in the fleet file keeps the rule."""
    assert is_kept(plan, "titan-01.cellar", "192.168.40.21")
    assert not is_kept(plan, "titan-01.cellar", "192.168.40.22")


def _address_in(block: IPv4Network) -> IPv4Address:
    return block[9]


class SysctlHost:
    """A host that returns the same sysctl.d lines for each command."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def check_output(self, _command: str) -> str:
        """Return the lines."""
        return "\n".join(self._lines)


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        (["# a.b = 1", "; a.b = 1", "", " a.b=1 "], {"a.b": "1"}),
        (["a.b = 1", "# /etc/sysctl.d/z.conf", "a.b = 2"], {"a.b": "2"}),
        (["-a.b = 4096  131072\t6"], {"a.b": "4096 131072 6"}),
        (["net/ipv4/conf/eth0.7/forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["net.ipv4.conf.eth0/7.forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["-net.ipv4.conf.eth0.forwarding"], {}),
    ],
    ids=["comments", "last value", "minus", "slashes", "dots", "no value"],
)
def test_sysctl_files_are_parsed_as_systemd_does(lines: list[str], values: dict[str, str]) -> None:
    """The last value counts, a minus is ignored, and slashes separate a key that has one first."""
    assert parse_sysctl_files(lines) == values


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a.*.c = 0", "a.b.d = 1"], []),
        (["a.*.c = 0"], ["a.b.d is not set at boot"]),
        (["a.*.c = 0", "a.b.d = 2"], ["a.b.d = 2 at the next boot"]),
        (["a.*.c = 0", "a.b.d = 1", "a/eth0/c = 1"], ["a.eth0.c = 1 at the next boot"]),
    ],
    ids=["as expected", "missing", "another value", "one interface"],
)
def test_boot_deviations_are_reported(lines: list[str], expected: list[str]) -> None:
    """A value for one interface is reported, too, if it differs from the expected value for all."""
    deviations = boot_deviations(SysctlHost(*lines), {"a.*.c": "0", "a.b.d": "1"})

    assert [text.partition("; ")[0] for text in deviations] == expected


Defaults = dict[str, Any]
ROLE_DEFAULTS: Defaults = {"Options": [{name: value} for name, value in SUDO_DEFAULTS.items()]}


def _defaults(option: Defaults, **binding: str) -> Defaults:
    scope = {"Binding": [binding]} if binding else {}
    return {**scope, "Options": [option]}


@pytest.mark.parametrize(
    "others",
    [
        (),
        (_defaults({"env_reset": True}), _defaults({"log_year": True})),
        (_defaults({"logfile": "/var/log/sudo.log"}, username="ada"),),
    ],
    ids=["only ours", "unrelated", "repeated"],
)
def test_overridden_sudo_settings_are_allowed(others: tuple[Defaults, ...]) -> None:
    """A general setting before the role's file has no effect, so it is not reported."""
    assert sudo_deviations({"Defaults": [_defaults({"logfile": False}), *others, ROLE_DEFAULTS]}) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (_defaults({"logfile": "/dev/null"}),), "logfile is /dev/null"),
        ((), (_defaults({"syslog": False}),), "syslog is False"),
        ((), (_defaults({"syslog_goodpri": "none"}),), "syslog_goodpri is none"),
        ((_defaults({"log_allowed": False}, username="ada"),), (), "log_allowed is False for ada"),
        ((_defaults({"syslog": False}, command="/bin/bash"),), (), "syslog is False for /bin/bash"),
        ((_defaults({"use_pty": False}, usergroup="vision"),), (), "use_pty is False for vision"),
    ],
    ids=["other file", "no journal", "no priority", "user", "command", "group"],
)
def test_sudo_deviation_is_reported(before: tuple[Defaults, ...], after: tuple[Defaults, ...], expected: str) -> None:
    """The last general setting counts; one for a user, group or command counts in any order."""
    assert sudo_deviations({"Defaults": [*before, ROLE_DEFAULTS, *after]}) == [expected]


def test_sudo_defaults_are_deviations() -> None:
    """Without the role, sudo writes no log file."""
    assert "logfile is None" in sudo_deviations({})


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("assert False\n +  where False = <service chrony>.is_enabled", "chrony is not enabled"),
        ("assert not True\n +  where True = <socket tcp://111>.is_listening", "tcp://111 is listening"),
        ("assert False\n +  where False = <file /etc/motd>.exists", "/etc/motd does not exist"),
        ("assert not True\n +  where True = <file /etc/hosts.equiv>.exists", "/etc/hosts.equiv exists"),
        ("assert False\n +  where False = exists('nvtop')\n +    where exists = .exists", "nvtop is not installed"),
        ("grace has a password\nassert ['grace'] == []", "grace has a password\nassert ['grace'] == []"),
        ("assert 1\n +  where 1 = <built-in method x of y at 0x7>", "assert 1"),
    ],
    ids=["service", "socket", "missing file", "existing file", "program", "own message", "introspection"],
)
def test_failure_describes_the_node(message: str, expected: str) -> None:
    """A failure describes the node, instead of the Python objects that pytest compared."""
    assert simplify_failure(message) == expected


@pytest.fixture(scope="module")
def here() -> LocalBackend:
    """Return the backend of this machine."""
    return LocalBackend("here")


@pytest.mark.parametrize(
    ("command", "result"),
    [
        pytest.param("echo yes", (0, "yes\n", ""), id="stdout"),
        pytest.param("printf 'no newline'", (0, "no newline", ""), id="no newline"),
        pytest.param("echo oh >&2; exit 3", (3, "", "oh\n"), id="stderr"),
        pytest.param("exit 255", (255, "", ""), id="exit code of a lost connection"),
        pytest.param("cat", (0, "", ""), id="stdin"),
        pytest.param(r"printf '\000\377\n'", (0, "\x00\ufffd\n", ""), id="bytes"),
        pytest.param("echo \"it's\" '$HOME'", (0, "it's $HOME\n", ""), id="quotes"),
        pytest.param("yes | head -c 300000 | wc -c", (0, "300000\n", ""), id="pipes"),
    ],
)
def test_command_has_its_own_result(command: str, result: tuple[int, str, str], here: LocalBackend) -> None:
    """Exit code, stdout and stderr of a command are those of a separate login, each time."""
    first, second = here.run(command), here.run(command)

    assert (first.rc, first.stdout, first.stderr) == (second.rc, second.stdout, second.stderr) == result


def test_commands_run_with_english_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ignore the locale of the operator's terminal, because rules parse English output."""
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("PYTHONPATH", "/opt/bundle")

    result = LocalBackend("here").run("echo $LANGUAGE$LC_ALL$PYTHONPATH")

    assert result.stdout == "C.UTF-8\n"


def test_large_output_is_read_completely(here: LocalBackend) -> None:
    """Stdout and stderr are read at the same time, so that neither blocks the other."""
    result = here.run("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")

    assert (result.rc, len(result.stdout), len(result.stderr)) == (0, 3_000_000, 3_000_000)


def test_commands_do_not_affect_each_other(here: LocalBackend) -> None:
    """A change of folder or variables does not reach the next command."""
    here.run("cd /; LEFT=over; export LEFT; umask 077")

    assert here.run("echo $LEFT").stdout == "\n"


def test_command_that_times_out_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a timeout, the command and its children are killed, even if they ignore signals; the next command works."""
    stubborn = f"trap '' TERM; sleep 30 & echo $! >{tmp_path}/child; wait"
    monkeypatch.setattr("bedplate.compliance.shell._TIMEOUT_SECONDS", 1)
    start, here = time.monotonic(), LocalBackend("here")

    with pytest.raises(NoAnswerError):
        here.run(stubborn)

    assert time.monotonic() - start < 15
    assert here.run("echo yes").stdout == "yes\n"
    child = (tmp_path / "child").read_text().strip()
    # Zombies do not count: their parent has not read their exit code.
    assert here.run(f"ps -o stat= -p {child} | grep -v Z").stdout == ""


@pytest.mark.parametrize("status", [124, 137])
def test_exit_code_of_timeout_is_no_timeout(status: int, here: LocalBackend) -> None:
    """A command that exits in time with a code of timeout(1) has not timed out."""
    assert here.run(f"exit {status}").rc == status


def test_a_real_sshd_carries_all_commands_by_one_login(tmp_path: Path) -> None:
    """A login that the server ends in the middle is a lost connection; a wrong host key is refused, as for an apply."""
    with running_server(tmp_path) as server:
        known_hosts, config = tmp_path / "known_hosts", tmp_path / "ssh_config"
        known_hosts.write_text(f"titan {server.key}\n")
        config.write_text(
            f"Host *\n  HostName 127.0.0.1\n  HostKeyAlias titan\n  Port {server.port}\n"
            f"  UserKnownHostsFile {known_hosts}\n"
        )
        _, user, _, identity = server.login
        backend = ShellBackend(f"{user}@titan", ssh_config=str(config), ssh_identity_file=identity)
        parents = [backend.run("ps -o ppid= -p $PPID").stdout for _ in range(2)]
        assert parents[0] == parents[1] != ""

        with pytest.raises(NodeError, match="the connection was lost"):
            backend.run("kill -9 $PPID")

        known_hosts.write_text("")
        with pytest.raises(NodeError, match="host key not recorded"):
            ShellBackend(f"{user}@titan", ssh_config=str(config), ssh_identity_file=identity).run("true")


TIMEOUT_RULES = """
import pytest
from bedplate.compliance import shell

@pytest.fixture(scope="module")
def slow(host):
    host.backend._timeout, shell._SHORT_TIMEOUT_SECONDS = 1, 0.2
    host.check_output("sleep 30")

def test_first(slow):
    "The fixture times out."

def test_second(host):
    "The rule times out, after the short timeout."
    assert not host.file("/").exists or host.run("sleep 30").succeeded

def test_third(host):
    "The rule is judged."
    assert host.run("true").succeeded
"""


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest without its installed plugins, as the audit does, from the project's folder."""
    command = (sys.executable, "-m", "pytest", "-p", "testinfra.plugin", *arguments)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_rule_without_an_answer_is_not_seen(tmp_path: Path) -> None:
    """A rule whose command times out is neither passed nor failed, later rules are judged, and the exit code is 6."""
    rule_file, target = tmp_path / "test_storage.py", tmp_path / "findings"
    rule_file.write_text(TIMEOUT_RULES)
    setting = ("-p", "bedplate.compliance.conftest", "-c", str(CHECKS / "pytest.ini"), "--rootdir", str(tmp_path))
    options = ("--hosts=here://titan-03.cellar", f"--fleet={EXAMPLES / 'lab.yaml'}", f"--findings={target}")

    done = _pytest(*setting, *options, str(rule_file))

    assert done.returncode == PartialError.exit_code, done.stdout + done.stderr
    (findings,) = parse_findings(target.read_text())
    assert [verdict.outcome for verdict in findings.verdicts] == [
        RuleOutcome.UNKNOWN,
        RuleOutcome.UNKNOWN,
        RuleOutcome.PASSED,
    ]
    assert [verdict.words for verdict in findings.of(RuleOutcome.UNKNOWN)] == [
        "no answer within 1 s: sleep 30",
        "no answer within 0.2 s: sleep 30",
    ]


COMPARISONS = """
import re
import pytest

@pytest.mark.parametrize("found", ["vm"])
def test_name(host, found):
    "A."
    assert found == "box1"

@pytest.mark.parametrize("found", [["a", "c"]])
def test_list(host, found):
    "B."
    assert found == ["b", "c"], "two lines"

@pytest.mark.parametrize("found", [{"x": "yes"}])
def test_choice(host, found):
    "C."
    assert found["x"] in {"no"}

def test_text(host):
    "D."
    assert host.file("/etc/passwd").content_string == host.file("/etc/passwd").content_string + "extra\\n"

def test_line(host):
    "E."
    assert "remember=24" in host.check_output("echo a")

def test_set(host):
    "F."
    assert set(host.check_output("echo a b").split()) <= {"b"}

def test_empty(host):
    "G."
    assert [word for word in host.check_output("echo a b").split() if word] == []
"""


def test_violation_shows_what_was_found_and_expected(tmp_path: Path) -> None:
    """Without pytest's comparison of Python objects."""
    rule_file, target = tmp_path / "test_storage.py", tmp_path / "findings"
    rule_file.write_text(COMPARISONS)
    setting = ("-p", "bedplate.compliance.conftest", "-c", str(CHECKS / "pytest.ini"), "--rootdir", str(tmp_path))
    options = ("--hosts=here://titan-03.cellar", f"--fleet={EXAMPLES / 'lab.yaml'}", f"--findings={target}")

    _pytest(*setting, *options, str(rule_file))

    (findings,) = parse_findings(target.read_text())
    assert [verdict.words.splitlines() for verdict in findings.verdicts] == [
        ["found: vm", "expected: box1"],
        ["two lines", "not expected: a", "not found: b"],
        ["found: yes", "expected: one of no"],
        ["not found: extra"],
        ["not found: remember=24"],
        ["not expected: a"],
        ["not expected: a, b"],
    ]


def test_no_process_is_left_after_an_audit() -> None:
    """The agent and its connection end with the backend."""
    backend = LocalBackend("here")
    agent = backend.run("echo $PPID").stdout.strip()
    assert Path(f"/proc/{agent}").exists()

    del backend

    assert not Path(f"/proc/{agent}").exists()


def test_rules_are_found_in_the_package_and_by_the_link() -> None:
    """`bedplate node audit` and `pytest tests/compliance` run the same rules: the folder is a link to the package."""
    options = ("--collect-only", "--quiet", f"--fleet={EXAMPLES / 'lab.yaml'}", "--hosts=here://titan-03.cellar")
    link = ROOT / "tests" / "compliance"

    package, linked = (_pytest(*options, "-c", str(folder / "pytest.ini"), str(folder)) for folder in (CHECKS, link))

    names = [line.rpartition("/")[2] for line in linked.stdout.splitlines() if "::" in line]
    assert link.resolve() == CHECKS
    assert "test_hardened_ssh.py::test_sshd_refuses_passwords[here://titan-03.cellar]" in linked.stdout
    assert names
    assert names == [line.rpartition("/")[2] for line in package.stdout.splitlines() if "::" in line]


def test_every_role_with_rules_is_selectable() -> None:
    """The role of a rule is the first word of its file name after `test_`."""
    assert {role_name for role_name, _ in rules()} == set(roles_checked())


def test_every_rule_has_a_defect() -> None:
    """Each rule has a seeded defect with which it fails."""
    assert set(rules()) - set(defects()) == set()


def test_every_defect_belongs_to_a_rule() -> None:
    """No defect remains of a rule that was renamed or removed."""
    assert set(defects()) - set(rules()) == set()


def test_every_defect_changes_something() -> None:
    """A defect without a command proves nothing."""
    assert [rule for rule, defect in defects().items() if defect.seed == "true"] == []


def test_rules_have_unique_names() -> None:
    """A report identifies a rule by its role and name."""
    assert len(set(rules())) == len(rules())
