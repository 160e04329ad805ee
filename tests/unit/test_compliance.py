"""Who counts as a stranger among a node's accounts, by the tables of both distributions."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.compliance.ledger import plain
from bedplate.compliance.settings import WANTED, at_the_next_boot, beside, hidden, strangers, takes_back, told_by_files
from bedplate.compliance.shell import HereBackend, asked, ended
from bedplate.compliance.test_monitoring import test_node_exporter_listens_on_one_address as promised
from bedplate.errors import PartError
from bedplate.nodes.audit import CHECKS, Outcome, findings_of
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import node_of
from roles.hardened import role
from roles.hardened.logins import IMAGE_ACCOUNTS
from roles.storage.exports import EXPORTS, server_of
from tests.testlab.fakes.node import Recorded
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.defects import defects, rules
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

OWN = {"root", *IMAGE_ACCOUNTS}


def _rows(system: Recorded) -> list[list[str]]:
    return [line.partition("|")[0].split(":") for line in system.answers["server.Users"] or ()]


def test_what_a_distribution_brings_is_no_stranger(system: Recorded) -> None:
    """Nobody is told of accounts that every machine has."""
    assert len(_rows(system)) > 15
    assert strangers(_rows(system), OWN) == []


@pytest.mark.parametrize(
    "row",
    [
        "toor:x:0:0::/root:/usr/sbin/nologin",
        "games:x:5:60:games:/usr/games:/bin/bash",
        "games:x:5:60:games:/usr/games:",
        "guest:x:1500:1500::/home/guest:/usr/sbin/nologin",
        "mole:x:70000:70000::/var/mole:/bin/false",
    ],
    ids=["root's number", "shell", "default shell", "person's number", "large number"],
)
def test_a_stranger_is_found_among_them(row: str, system: Recorded) -> None:
    """By what makes somebody of an account: a shell, a number above daemons', or root's."""
    name = row.partition(":")[0]
    rows = [each for each in _rows(system) if each[0] != name]

    assert strangers([*rows, row.split(":")], OWN) == [name]


def test_whoever_the_fleet_names_is_none(system: Recorded) -> None:
    """People of the file, and former ones, whose names stay."""
    assert (
        strangers([*_rows(system), ["ada", "x", "20000", "20000", "", "/home/ada", "/bin/bash"]], {*OWN, "ada"}) == []
    )


# Debian's and Ubuntu's own file.
DISTRIBUTION = "## First rule - delete all\n-D\n\n-b 8192\n--backlog_wait_time 60000\n-f 1\n"


@pytest.mark.parametrize(
    "text",
    [
        role.rules("x86_64"),
        DISTRIBUTION,
        "-e 2\n",
        "-a exit,always -F arch=b64 -S execve\n-A always,user -F uid=0\n  # a word\n",
    ],
    ids=["ours", "distribution", "for ever", "more"],
)
def test_what_adds_is_let_pass(text: str) -> None:
    """More may be written down than the fleet asks for, and its rules may be shut in until the next boot."""
    assert [line for line in text.splitlines() if takes_back(line)] == []


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
def test_what_takes_back_is_found(line: str) -> None:
    """Also one that augenrules leaves in its place for a space before it."""
    assert takes_back(line)


(OURS,) = (file.text for file in server_of(lab_node("nas.cellar").shares, by_kernel=True).files if file.path == EXPORTS)
# As exportfs of nfs-utils 2.6 writes it.
KEPT = (
    "rw,sync,wdelay,hide,nocrossmnt,secure,root_squash,no_all_squash,no_subtree_check,secure_locks,acl,no_pnfs,"
    "fsid=f2b4d1b5-7f9e-5f5e-9d5b-0c1f5f3a2b11,anonuid=65534,anongid=65534,sec=sys,rw,secure,root_squash,no_all_squash"
)


def in_force(text: str) -> str:
    """Return the kernel's table for the lines of exports(5)."""
    rows = [line.split() for line in text.splitlines() if line.startswith("/")]
    return "".join(f"{path}\t{each.partition('(')[0]}({KEPT})\n" for path, *clients in rows for each in clients)


def test_the_plans_own_are_let_pass() -> None:
    """By the file, and by what the kernel's server makes of it."""
    assert beside(OURS, OURS) == []
    assert beside(in_force(OURS), OURS) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/srv *(rw)", ["/srv to *"]),
        ("/srv/data", ["/srv/data to *"]),
        ("/srv/data (ro)", ["/srv/data to *"]),
        ("/srv/data \\\n  198.51.100.7(ro)", ["/srv/data to 198.51.100.7"]),
        ("/srv/data -no_root_squash", ["/srv/data to -no_root_squash"]),
        ("/srv/data {client}(rw,no_root_squash)", ["/srv/data to {client} no_root_squash"]),
        ("/srv/data {client}(rw,insecure,anonuid=0)", ["/srv/data to {client} insecure anonuid=0"]),
        (f"/srv/data\t198.51.100.7({KEPT})", ["/srv/data to 198.51.100.7"]),
    ],
    ids=["folder", "everybody", "no name", "two lines", "defaults", "root", "ports", "table"],
)
def test_what_is_exported_beside_the_plan_is_told(line: str, words: list[str]) -> None:
    """A further folder, a further client, or a client of the plan's that may more."""
    (row,) = (line for line in OURS.splitlines() if line.startswith("/srv/data "))
    client = row.split()[1].partition("(")[0]

    found = beside(line.replace("{client}", client), OURS)

    assert found == [each.replace("{client}", client) for each in words]


LAB = (EXAMPLES / "lab.yaml").read_text()
ALLOWED = "allow: {E222: it was the lab's before}\n"
# A person's bench, and the gateway of laptops, which stands outside the nodes' subnets.
CLOUD = ("workbench-cpu-1.us-west-2", "laptops.us-west-2")


class Listening:
    """A machine of which somebody asks for nothing but the sockets of its exporter."""

    def __init__(self, *at: str) -> None:
        self._at = at

    def check_output(self, asked: str, port: str) -> str:
        """Answer as ss does."""
        assert asked.startswith("ss --listening")
        return "".join(f"LISTEN 0 4096 {each}:{port} 0.0.0.0:*\n" for each in self._at)


@pytest.fixture(scope="module", params=["10.64.0.0/10", "100.64.0.0/10"], ids=["private", "carriers"])
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    """Give the plan of the lab in one block or another."""
    fleet = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    fleet.write_text(f"{LAB.replace('10.64.0.0/10', request.param)}\n{ALLOWED}")
    return plan_of(fleet)


def keeps(plan: FleetPlan, name: str, *at: str) -> bool:
    """Tell whether a machine that listens there keeps the promise."""
    try:
        promised(Listening(*at), node_of(plan, name, load_catalog()), plan)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", CLOUD)
def test_an_address_of_the_regions_block_is_right(name: str, plan: FleetPlan) -> None:
    """AWS picks it there, whatever block the lab has."""
    assert keeps(plan, name, str(_some(plan.region("us-west-2").block)))


@pytest.mark.parametrize("name", CLOUD)
def test_any_other_address_is_wrong(name: str, plan: FleetPlan) -> None:
    """Another region's, a public one, loopback, every address, a second one, none."""
    own, other = (str(_some(plan.region(each).block)) for each in ("us-west-2", "us-east-1"))

    for at in ((other,), ("8.8.8.8",), ("127.0.0.1",), ("0.0.0.0",), ("*",), ("[::]",), (own, own), ()):  # noqa: S104  as ss says it
        assert not keeps(plan, name, *at), at


def test_a_machine_of_a_site_listens_where_the_file_says(plan: FleetPlan) -> None:
    """And nowhere else in its room."""
    assert keeps(plan, "titan-01.cellar", "192.168.40.21")
    assert not keeps(plan, "titan-01.cellar", "192.168.40.22")


def _some(block: IPv4Network) -> IPv4Address:
    return block[9]


class Files:
    """A machine of which nothing is asked but its files."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def check_output(self, _command: str) -> str:
        """Show them."""
        return "\n".join(self._lines)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["# a.b = 1", "; a.b = 1", "", " a.b=1 "], {"a.b": "1"}),
        (["a.b = 1", "# /etc/sysctl.d/z.conf", "a.b = 2"], {"a.b": "2"}),
        (["-a.b = 4096  131072\t6"], {"a.b": "4096 131072 6"}),
        (["net/ipv4/conf/eth0.7/forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["net.ipv4.conf.eth0/7.forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["-net.ipv4.conf.eth0.forwarding"], {}),
    ],
    ids=["remarks", "last", "failing", "slashes", "dots", "left out"],
)
def test_files_are_read_as_systemd_reads_them(lines: list[str], told: dict[str, str]) -> None:
    """The last word counts; a minus says that it may fail; a slash that comes first parts a key."""
    assert told_by_files(lines) == told


@pytest.mark.parametrize(
    ("lines", "amiss"),
    [
        (["a.*.c = 0", "a.b.d = 1"], []),
        (["a.*.c = 0"], ["a.b.d is not set at boot"]),
        (["a.*.c = 0", "a.b.d = 2"], ["a.b.d = 2 at the next boot"]),
        (["a.*.c = 0", "a.b.d = 1", "a/eth0/c = 1"], ["a.eth0.c = 1 at the next boot"]),
    ],
    ids=["as wanted", "missing", "another", "of one interface"],
)
def test_what_a_boot_makes_otherwise_is_told(lines: list[str], amiss: list[str]) -> None:
    """Also what a file says of one interface, where all are wanted to be alike."""
    found = at_the_next_boot(Files(*lines), {"a.*.c": "0", "a.b.d": "1"})

    assert [each.partition(", by a file")[0] for each in found] == amiss


Entry = dict[str, Any]
COMPLIANCE_SUDO_OURS: Entry = {"Options": [{name: value} for name, value in WANTED.items()]}


def _of(option: Entry, **binding: str) -> Entry:
    bound = {"Binding": [binding]} if binding else {}
    return {**bound, "Options": [option]}


@pytest.mark.parametrize(
    "others",
    [
        (),
        (_of({"env_reset": True}), _of({"log_year": True})),
        (_of({"logfile": "/var/log/sudo.log"}, username="ada"),),
    ],
    ids=["ours", "of no matter", "said again"],
)
def test_what_is_told_of_everybody_is_let_pass(others: tuple[Entry, ...]) -> None:
    """What another file sets for all before ours counts no more."""
    assert hidden({"Defaults": [_of({"logfile": False}), *others, COMPLIANCE_SUDO_OURS]}) == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((), (_of({"logfile": "/dev/null"}),), "logfile is /dev/null"),
        ((), (_of({"syslog": False}),), "syslog is False"),
        ((), (_of({"syslog_goodpri": "none"}),), "syslog_goodpri is none"),
        ((_of({"log_allowed": False}, username="ada"),), (), "log_allowed is False for ada"),
        ((_of({"syslog": False}, command="/bin/bash"),), (), "syslog is False for /bin/bash"),
        ((_of({"use_pty": False}, usergroup="vision"),), (), "use_pty is False for vision"),
    ],
    ids=["elsewhere", "not in the journal", "below notice", "person", "command", "group"],
)
def test_who_is_hidden_is_found(before: tuple[Entry, ...], after: tuple[Entry, ...], found: str) -> None:
    """By what is said last for all, and for one by whatever is said of them, also before ours."""
    assert hidden({"Defaults": [*before, COMPLIANCE_SUDO_OURS, *after]}) == [found]


def test_sudo_s_own_defaults_are_not_taken_for_ours() -> None:
    """A node that nobody has hardened writes no log."""
    assert "logfile is None" in hidden({})


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("assert False\n +  where False = <service chrony>.is_enabled", "chrony is not enabled"),
        ("assert not True\n +  where True = <socket tcp://111>.is_listening", "tcp://111 is listening"),
        ("assert False\n +  where False = <file /etc/motd>.exists", "/etc/motd is not there"),
        ("assert not True\n +  where True = <file /etc/hosts.equiv>.exists", "/etc/hosts.equiv is there"),
        ("assert False\n +  where False = exists('nvtop')\n +    where exists = .exists", "nvtop is not there"),
        ("grace has a password\nassert ['grace'] == []", "grace has a password\nassert ['grace'] == []"),
        ("assert 1\n +  where 1 = <built-in method x of y at 0x7>", "assert 1"),
    ],
    ids=["service", "socket", "file", "file too many", "program", "own words", "way"],
)
def test_what_was_asked_of_a_machine_becomes_a_sentence(message: str, told: str) -> None:
    """Pytest tells what Python compared; an operator is told what of the machine is otherwise."""
    assert plain(message) == told


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    """Give a shell that waits for questions."""
    pipe = subprocess.PIPE
    opened = subprocess.Popen(["sh"], stdin=pipe, stdout=pipe, stderr=pipe)
    yield opened
    ended(opened)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        pytest.param("echo yes", (0, b"yes\n", b""), id="said"),
        pytest.param("printf 'no end'", (0, b"no end", b""), id="without an end of line"),
        pytest.param("echo oh >&2; exit 3", (3, b"", b"oh\n"), id="complained"),
        pytest.param("exit 255", (255, b"", b""), id="the status of a lost connection"),
        pytest.param("cat", (0, b"", b""), id="reads nothing"),
        pytest.param(r"printf '\000\377\n'", (0, b"\x00\xff\n", b""), id="bytes"),
        pytest.param("echo \"it's\" '$HOME'", (0, b"it's $HOME\n", b""), id="quotes"),
        pytest.param("yes | head -c 300000 | wc -c", (0, b"300000\n", b""), id="pipes"),
    ],
)
def test_a_question_has_its_own_answer(
    command: str, answer: tuple[int, bytes, bytes], shell: subprocess.Popen[bytes]
) -> None:
    """Status, words and complaints come back as a login of its own would give them, again and again."""
    first, second = asked(shell, command), asked(shell, command)

    assert first == second == answer


def test_answers_are_in_plain_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever language the operator's terminal brings along: rules read the words of programs."""
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    answer = HereBackend("here").run("echo $LANGUAGE$LC_ALL")

    assert answer.stdout == "C.UTF-8\n"


def test_much_is_read_whole(shell: subprocess.Popen[bytes]) -> None:
    """Both streams are emptied at once, so that neither holds up the other."""
    status, said, complained = asked(shell, "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")

    assert (status, len(said), len(complained)) == (0, 3_000_000, 3_000_000)


def test_nothing_is_left_to_the_next_question(shell: subprocess.Popen[bytes]) -> None:
    """A command that changes its folder or its variables changes them for itself."""
    asked(shell, "cd /; LEFT=over; export LEFT; umask 077")

    assert asked(shell, "echo $LEFT")[1] == b"\n"


def test_what_does_not_end_is_ended(shell: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """With all that it started and whatever it makes of signals; the next question has its answer."""
    stubborn = f"trap '' TERM; sleep 30 & echo $! >{tmp_path}/child; wait"
    begun = time.monotonic()

    with pytest.raises(TimeoutError):
        asked(shell, stubborn, 1)

    assert time.monotonic() - begun < 15
    assert asked(shell, "echo yes") == (0, b"yes\n", b"")
    child = (tmp_path / "child").read_text().strip()
    # Whoever has ended and whose end nobody has asked for yet is there still.
    assert asked(shell, f"ps -o stat= -p {child} | grep -v Z")[1] == b""


@pytest.mark.parametrize("status", [124, 137])
def test_a_status_like_that_of_a_late_end_is_its_own(status: int, shell: subprocess.Popen[bytes]) -> None:
    """A command may end as timeout(1) would, in its time."""
    assert asked(shell, f"exit {status}")[0] == status


LOOKING = """
import pytest
from bedplate.compliance import shell

@pytest.fixture(scope="module")
def late(host):
    host.backend._patience, shell._HASTE_SECONDS = 1, 0.2
    host.check_output("sleep 30")

def test_first(late):
    "A fixture waits."

def test_second(host):
    "The rule itself waits, less long."
    assert not host.file("/").exists or host.run("sleep 30").succeeded

def test_third(host):
    "The others are judged."
    assert host.run("true").succeeded
"""


def test_a_rule_whose_machine_does_not_answer_is_not_seen(tmp_path: Path) -> None:
    """It is neither kept nor violated, the rules after it are judged, and the whole is a success in part."""
    rules, found = tmp_path / "test_storage.py", tmp_path / "found"
    rules.write_text(LOOKING)
    plugins = ("-p", "testinfra.plugin", "-p", "bedplate.compliance.conftest", "-c", str(CHECKS / "pytest.ini"))
    where = ("--hosts=here://titan-03.cellar", f"--fleet={EXAMPLES / 'lab.yaml'}", f"--findings={found}")
    run = (sys.executable, "-m", "pytest", *plugins, "--rootdir", str(tmp_path), *where, str(rules))
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(run, cwd=CHECKS.parents[1], env=alone, capture_output=True, text=True, check=False)

    assert done.returncode == PartError.exit_code, done.stdout + done.stderr
    (findings,) = findings_of(found.read_text())
    assert [each.outcome for each in findings.verdicts] == [Outcome.UNSEEN, Outcome.UNSEEN, Outcome.KEPT]
    assert [each.words for each in findings.of(Outcome.UNSEEN)] == [
        "no answer within 1 s: sleep 30",
        "no answer within 0.2 s: sleep 30",
    ]


def test_a_shell_that_is_gone_answers_as_openssh_does(shell: subprocess.Popen[bytes]) -> None:
    """Status 255, which testinfra and the ledger take for a machine that is not reached."""
    shell.kill()
    shell.wait()

    assert asked(shell, "true")[0] == 255
    assert shell.poll() is not None


def test_every_rule_has_its_planted_defect() -> None:
    """A rule that nobody has seen fail may be one that cannot."""
    assert set(rules()) - set(defects()) == set()


def test_every_planted_defect_is_of_a_rule() -> None:
    """What is renamed or gone leaves no defect behind that nobody looks for."""
    assert set(defects()) - set(rules()) == set()


def test_every_defect_plants_something() -> None:
    """A defect that changes nothing shows nothing."""
    assert [rule for rule, defect in defects().items() if defect.plant == "true"] == []


def test_rules_have_names_of_their_own() -> None:
    """A report names a rule by its role and its name."""
    assert len(set(rules())) == len(rules())
