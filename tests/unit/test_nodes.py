"""Host keys: fingerprints as ssh-keygen has them, and what ssh is told to believe."""

import io
import subprocess
from pathlib import Path
from types import MappingProxyType

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.nodes.apply import (
    Event,
    Kind,
    Order,
    Outcome,
    Step,
    Target,
    event_of,
    exit_status,
    read_order,
    working,
    write_order,
)
from bedplate.nodes.host_keys import fingerprint, fingerprint_of, fingerprint_of_sshfp, keys_of_scan, known_hosts
from bedplate.nodes.ssh import Login, Reached, ssh_config, ways
from bedplate.plan.nodes import pool_node, pool_nodes, standing_nodes
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

NODES = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))
SCAN = """# 192.168.40.21:22 SSH-2.0-OpenSSH_9.2p1
192.168.40.21 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
192.168.40.21 ssh-rsa not-base-64!
192.168.40.21: connection closed
"""


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_fingerprint_is_the_one_that_ssh_keygen_prints(kind: str, tmp_path: Path) -> None:
    """The operator compares it with the machine's console."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = tmp_path / "key.pub"
    told = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True).stdout

    assert fingerprint(public.read_text()) == told.split()[1]


def test_an_sshfp_record_has_the_fingerprint_of_its_key(tmp_path: Path) -> None:
    """As OpenSSH itself writes both; the record by SHA-1 that it writes beside it is not believed."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    command = ["ssh-keygen", "-r", "x", "-f", str(tmp_path / "key.pub")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    records = {line.split()[4]: line.partition(" SSHFP ")[2] for line in told.splitlines()}

    assert fingerprint_of_sshfp(records["2"]) == fingerprint((tmp_path / "key.pub").read_text())
    assert fingerprint_of_sshfp(records["2"].upper()) == fingerprint_of_sshfp(records["2"])
    assert fingerprint_of_sshfp(records["1"]) is None


@pytest.mark.parametrize(
    "text", ["", "4 2", f"1 2 {'0' * 64}", f"4 2 {'0' * 62}", f"4 2 {'0' * 66}", f"4 2 {'g' * 64}"]
)
def test_any_other_sshfp_record_has_none(text: str) -> None:
    """RSA's are not written by machines; what is cut short was not written by them either."""
    assert fingerprint_of_sshfp(text) is None


@pytest.mark.parametrize("text", ["A" * 43, "SHA256:" + "A" * 43, "SHA256:" + "A" * 43 + "="])
def test_a_fingerprint_is_taken_as_people_copy_it(text: str) -> None:
    """With its prefix or without."""
    assert fingerprint_of(text) == "SHA256:" + "A" * 43


@pytest.mark.parametrize("text", ["", "SHA256:short", "MD5:16:27:ac:a5:76", "SHA256:" + "A" * 42 + "!"])
def test_anything_else_is_refused_with_how_to_read_one(text: str) -> None:
    """MD5 included: it proves nothing any more."""
    with pytest.raises(InputError, match="no fingerprint") as refused:
        fingerprint_of(text)

    assert "ssh-keygen -lf" in refused.value.fix


def test_a_scan_gives_whole_keys_alone() -> None:
    """What the far end says is never taken at its word."""
    assert list(keys_of_scan(SCAN)) == [" ".join(SCAN.splitlines()[1].split()[1:])]


def test_only_recorded_keys_are_believed_under_name_and_fixed_address() -> None:
    """A machine of the cloud has no fixed address."""
    key = "ssh-ed25519 AAAA"

    text = known_hosts(NODES, {"titan-01.cellar": (key,), "laptops.us-west-2": (key,)})

    assert text.splitlines() == [
        f"titan-01.cellar.lab.internal,192.168.40.21 {key}",
        f"laptops.us-west-2.lab.internal {key}",
    ]


def test_an_order_arrives_as_it_was_given() -> None:
    """Plans hold views that nobody may write to: they stay so on the other side."""
    order = Order(tuple(Target(node, ("ssh", node.name)) for node in NODES), "ada", check=True, only=frozenset({"x"}))
    pipe = io.BytesIO()

    write_order(pipe, order)
    pipe.seek(0)
    arrived = read_order(pipe)

    assert arrived == order
    assert isinstance(arrived.targets[0].node.hosts, MappingProxyType)


def test_an_event_arrives_as_it_was_told() -> None:
    """A line each."""
    event = Event("nas.cellar", Step.TROUBLE, words="it\nbroke", kind=Kind.CUT, seconds=1.5)

    assert event_of(event.line()) == event
    assert "\n" not in event.line()


def test_the_process_that_applies_is_another_one() -> None:
    """It loads gevent, which we never do, and tells us of a node that is not reached in our own words."""
    refused = ("sh", "-c", "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255")

    with working(Order((Target(NODES[0], refused),), "ada", check=True)) as engine:
        (event,) = engine.events()

    assert (event.node, event.kind, event.words) == ("gate.cellar", Kind.UNREACHED, "no response on the SSH port")


def _outcome(*events: Event) -> Outcome:
    outcome = Outcome("n")
    for event in events:
        outcome.take(event)
    return outcome


DONE = _outcome(Event("n", Step.DONE, unchanged=3))
CHANGED = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.DONE, changed=1))
HELD = _outcome(Event("n", Step.TROUBLE, kind=Kind.HELD))
DEFECT = _outcome(Event("n", Step.TROUBLE, kind=Kind.DEFECT))
CUT = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.TROUBLE, kind=Kind.CUT))


@pytest.mark.parametrize(
    ("outcomes", "check", "status"),
    [
        ([DONE, CHANGED], False, 0),
        ([DONE], True, 0),
        ([DONE, CHANGED], True, 3),
        ([HELD, HELD], False, 5),
        ([HELD, DONE], False, 6),
        ([CUT, DONE], False, 6),
        ([CUT, CHANGED], True, 6),
        ([CUT, DEFECT], False, 1),
    ],
    ids=["done", "as-planned", "drift", "held", "one-held", "cut", "drift-and-cut", "defect"],
)
def test_the_exit_status_says_what_became_of_all(outcomes: list[Outcome], check: bool, status: int) -> None:  # noqa: FBT001
    """What is missing weighs more than what differs."""
    assert exit_status(outcomes, check=check) == status


LAB = plan_of(EXAMPLES / "lab.yaml")
EVERY = tuple(Reached(node) for node in (*standing_nodes(LAB), *pool_nodes(LAB, load_catalog())))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


def _understood(config: Path, name: str) -> dict[str, str]:
    """Return what ssh makes of a configuration for a name."""
    done = subprocess.run(["ssh", "-G", "-F", str(config), name], check=True, capture_output=True, text=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Give a configuration of the whole lab."""
    file = tmp_path / "config"
    file.write_text(ssh_config(EVERY, tmp_path / "known hosts", Login("ada")))
    return file


@pytest.mark.parametrize("name", ["titan-01", "titan-01.cellar", "titan-01.cellar.lab.internal"])
def test_a_machine_is_reached_by_any_of_its_names(name: str, config: Path, tmp_path: Path) -> None:
    """At its address, under its one name, by its recorded key alone."""
    understood = _understood(config, name)

    assert understood["hostname"] == "192.168.40.21"
    assert understood["hostkeyalias"] == "titan-01.cellar.lab.internal"
    assert understood["stricthostkeychecking"] == "true"
    assert understood["userknownhostsfile"] == str(tmp_path / "known hosts")
    assert understood["user"] == "ada"


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    """Neither a space nor a sign by which ssh writes something else in its place changes it."""
    known, key, file = (tmp_path / name for name in ("100% known hosts", "%u's $HOME key", "config"))
    file.write_text(ssh_config(EVERY, known, Login("ada", key)))

    understood = _understood(file, "titan-01")

    # As written: ssh expands them when it opens the file, "%%" to "%".
    assert understood["userknownhostsfile"].replace("%%", "%") == str(known)
    assert understood["identityfile"].replace("%%", "%") == str(key)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "${HOME}"], ids=["quote", "line", "variable"])
def test_a_path_that_ssh_would_read_otherwise_is_refused(name: str, tmp_path: Path) -> None:
    """There is no way to write it."""
    with pytest.raises(InputError, match="cannot name this path"):
        ssh_config(EVERY, tmp_path / name, Login("ada"))


@pytest.mark.parametrize("user", ["", "ada\n  ProxyCommand x", "-oProxyCommand=x", "a b", 'a"b', "a#b", "\x1b[2J"])
def test_a_user_that_no_line_can_name_is_refused(user: str) -> None:
    """A line break in it would be a setting of somebody else's."""
    with pytest.raises(InputError, match="is no name of a user"):
        Login(user)


def test_the_dns_is_never_asked_for_a_host_key(config: Path) -> None:
    """Machines write theirs into a zone that is not signed: whoever answers in its place is not believed."""
    assert _understood(config, "workbench-cpu-20.us-west-2")["verifyhostkeydns"] == "false"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("titan-01.cellar", "SHA256:..."),
        ("control-1.us-west-2", "SHA256:..."),
        ("workbench-cpu-2.us-west-2", "`bedplate node trust workbench-cpu-2.us-west-2` asks AWS"),
    ],
    ids=["site", "control", "pool"],
)
def test_an_unknown_machine_is_told_with_what_makes_it_known(name: str, fix: str, tmp_path: Path) -> None:
    """Where AWS knows the key nobody has to go to a console."""
    (machine,) = (each for each in EVERY if each.node.name == name)

    (event,) = ways(tmp_path, [machine], {}, Login("ada")).missing

    assert fix in event.fix


def test_a_worker_of_the_cloud_has_no_name_to_record(tmp_path: Path) -> None:
    """What it is called is EC2's: the lock knows no such machine, and nothing is promised."""
    pool = next(pool for pool in LAB.pools if pool.group == "train")
    worker = Reached(pool_node(LAB, pool, "ip-10-64-33-9.us-west-2", load_catalog()))

    (event,) = ways(tmp_path, [worker], {}, Login("ada")).missing

    assert "node trust" not in event.fix
    assert "--ssh-config" in event.fix


def test_a_machine_of_a_pool_is_resolved_by_its_name(config: Path) -> None:
    """Its address is AWS's to decide."""
    assert _understood(config, "workbench-cpu-20.us-west-2")["hostname"] == "workbench-cpu-20.us-west-2.lab.internal"


def test_a_host_name_that_two_machines_have_means_neither(config: Path) -> None:
    """workbench-gpu-1 stands in two regions."""
    assert _understood(config, "workbench-gpu-1")["hostname"] == "workbench-gpu-1"


def test_other_machines_are_left_as_they_were(config: Path) -> None:
    """The fragment is included by an operator who has other machines, too."""
    assert _understood(config, "github.com")["stricthostkeychecking"] != "true"


def test_an_apply_believes_the_lock_alone_and_comes_in_anew_each_time(tmp_path: Path) -> None:
    """No shared connection, no agent sent along, no question asked, no machine without a recorded key."""
    found = ways(tmp_path, EVERY[:3], {"nas.cellar": (KEY,)}, Login("ada"))

    (target,) = found.targets
    assert target.node.name == "nas.cellar"
    assert [event.node for event in found.missing] == ["gate.cellar", "titan-01.cellar"]
    understood = subprocess.run([*target.argv[:1], "-G", *target.argv[1:]], check=True, capture_output=True, text=True)
    settings = dict(line.partition(" ")[::2] for line in understood.stdout.splitlines())
    assert settings["userknownhostsfile"] == str(tmp_path / "known_hosts")
    assert settings["batchmode"] == "yes"
    assert settings["controlmaster"] == "false"
    assert settings["forwardagent"] == "no"
