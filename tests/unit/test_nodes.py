"""Machines over SSH: host keys, ssh configuration, apply requests, events and exit codes."""

import io
import subprocess
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.nodes.apply import (
    ApplyRequest,
    Event,
    NodeErrorKind,
    NodeResult,
    Step,
    Target,
    exit_status,
    parse_event,
    read_request,
    run_apply,
    write_request,
)
from bedplate.nodes.host_keys import fingerprint, fingerprint_of_sshfp, keys_of_scan, known_hosts, parse_fingerprint
from bedplate.nodes.ssh import Login, NodeLocation, logged_in, ssh_config, write_ssh_config
from bedplate.plan.nodes import permanent_nodes, pool_node, pool_nodes
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

NODES = permanent_nodes(plan_of(EXAMPLES / "lab.yaml"))
SCAN = """# 192.168.40.21:22 SSH-2.0-OpenSSH_9.2p1
192.168.40.21 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
192.168.40.21 ssh-rsa not-base-64!
192.168.40.21: connection closed
"""


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_fingerprints_match_ssh_keygen(kind: str, tmp_path: Path) -> None:
    """A fingerprint has the format of ssh-keygen, so that an operator can compare it at the console."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / "key")], check=True)
    public = tmp_path / "key.pub"
    output = subprocess.run(["ssh-keygen", "-lf", str(public)], check=True, capture_output=True, text=True).stdout

    assert fingerprint(public.read_text()) == output.split()[1]


def test_an_sshfp_record_has_the_fingerprint_of_its_key(tmp_path: Path) -> None:
    """The SHA-256 record of OpenSSH gives the key's fingerprint; its SHA-1 record is ignored."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    command = ["ssh-keygen", "-r", "x", "-f", str(tmp_path / "key.pub")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    records = {line.split()[4]: line.partition(" SSHFP ")[2] for line in output.splitlines()}

    assert fingerprint_of_sshfp(records["2"]) == fingerprint((tmp_path / "key.pub").read_text())
    assert fingerprint_of_sshfp(records["2"].upper()) == fingerprint_of_sshfp(records["2"])
    assert fingerprint_of_sshfp(records["1"]) is None


@pytest.mark.parametrize(
    "text", ["", "4 2", f"1 2 {'0' * 64}", f"4 2 {'0' * 62}", f"4 2 {'0' * 66}", f"4 2 {'g' * 64}"]
)
def test_other_sshfp_records_are_ignored(text: str) -> None:
    """Records of other key types and malformed records have no fingerprint."""
    assert fingerprint_of_sshfp(text) is None


@pytest.mark.parametrize("text", ["A" * 43, "SHA256:" + "A" * 43, "SHA256:" + "A" * 43 + "="])
def test_a_fingerprint_is_accepted_in_any_copied_form(text: str) -> None:
    """The prefix and the padding are optional."""
    assert parse_fingerprint(text) == "SHA256:" + "A" * 43


@pytest.mark.parametrize("text", ["", "SHA256:short", "MD5:16:27:ac:a5:76", "SHA256:" + "A" * 42 + "!"])
def test_a_malformed_fingerprint_is_refused(text: str) -> None:
    """Only SHA-256 fingerprints are accepted, not MD5; the fix shows how to print one."""
    with pytest.raises(InputError, match="is not a SHA256 fingerprint") as caught:
        parse_fingerprint(text)

    assert "ssh-keygen -lf" in caught.value.fix


def test_a_scan_returns_valid_keys_only() -> None:
    """Comments, errors and malformed keys in the output of ssh-keyscan are skipped."""
    assert list(keys_of_scan(SCAN)) == [" ".join(SCAN.splitlines()[1].split()[1:])]


def test_known_hosts_has_recorded_keys_by_name_and_fixed_address() -> None:
    """A machine without a fixed address is listed by name only; one without a recorded key is not listed."""
    key = "ssh-ed25519 AAAA"

    text = known_hosts(NODES, {"titan-01.cellar": (key,), "laptops.us-west-2": (key,)})

    assert text.splitlines() == [
        f"titan-01.cellar.lab.internal,192.168.40.21 {key}",
        f"laptops.us-west-2.lab.internal {key}",
    ]


def test_a_request_is_read_as_it_was_written() -> None:
    """A request survives the pipe unchanged, and the rest of the pipe stays for its end."""
    targets = tuple(Target(node, ("ssh", node.name)) for node in NODES)
    request = ApplyRequest(targets, "ada", check=True, only=frozenset({"x"}))
    pipe = io.BytesIO()

    write_request(pipe, request)
    pipe.write(b"rest")
    pipe.seek(0)

    assert read_request(pipe) == request
    assert pipe.read() == b"rest"


def test_an_event_is_read_as_it_was_written() -> None:
    """An event is one line of JSON, whatever its text."""
    event = Event("nas.cellar", Step.ERROR, words="it\nbroke", kind=NodeErrorKind.CUT, seconds=1.5)

    assert parse_event(event.line()) == event
    assert "\n" not in event.line()


def test_an_apply_runs_in_a_subprocess() -> None:
    """The subprocess loads gevent, this process does not; a failed connection is reported as an event."""
    refusing_ssh = ("sh", "-c", "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255")

    with run_apply(ApplyRequest((Target(NODES[0], refusing_ssh),), "ada", check=True)) as engine:
        (event,) = engine.events()

    assert (event.node, event.kind, event.words) == (
        "gate.cellar",
        NodeErrorKind.UNREACHED,
        "no response on the SSH port",
    )


def _outcome(*events: Event) -> NodeResult:
    outcome = NodeResult("n")
    for event in events:
        outcome.take(event)
    return outcome


DONE = _outcome(Event("n", Step.DONE, unchanged=3))
CHANGED = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.DONE, changed=1))
HELD = _outcome(Event("n", Step.ERROR, kind=NodeErrorKind.HELD))
DEFECT = _outcome(Event("n", Step.ERROR, kind=NodeErrorKind.DEFECT))
CUT = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.ERROR, kind=NodeErrorKind.CUT))


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
    ids=["changed", "no-drift", "drift", "all-locked", "one-locked", "cut-off", "drift-and-cut-off", "bug"],
)
def test_the_exit_code_combines_all_nodes(outcomes: list[NodeResult], check: bool, status: int) -> None:  # noqa: FBT001
    """An incomplete node takes precedence over drift, and a bug over both."""
    assert exit_status(outcomes, check=check) == status


LAB = plan_of(EXAMPLES / "lab.yaml")
MACHINES = tuple(NodeLocation(node) for node in (*permanent_nodes(LAB), *pool_nodes(LAB, load_catalog())))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


def _effective_settings(config: Path, name: str) -> dict[str, str]:
    """Return the effective settings of ssh for a host name."""
    result = subprocess.run(["ssh", "-G", "-F", str(config), name], check=True, capture_output=True, text=True)
    return dict(line.partition(" ")[::2] for line in result.stdout.splitlines())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Write the configuration of the whole lab."""
    file = tmp_path / "config"
    file.write_text(ssh_config(MACHINES, tmp_path / "known hosts", Login("ada")))
    return file


@pytest.mark.parametrize("name", ["titan-01", "titan-01.cellar", "titan-01.cellar.lab.internal"])
def test_each_name_of_a_machine_works(name: str, config: Path, tmp_path: Path) -> None:
    """Each name leads to the machine's address, and only its recorded key is accepted."""
    settings = _effective_settings(config, name)

    assert settings["hostname"] == "192.168.40.21"
    assert settings["hostkeyalias"] == "titan-01.cellar.lab.internal"
    assert settings["stricthostkeychecking"] == "true"
    assert settings["userknownhostsfile"] == str(tmp_path / "known hosts")
    assert settings["user"] == "ada"


def test_a_path_is_not_expanded(tmp_path: Path) -> None:
    """Spaces, percent signs and dollar signs in a path stay as they are."""
    hosts_file, key, file = (tmp_path / name for name in ("100% known hosts", "%u's $HOME key", "config"))
    file.write_text(ssh_config(MACHINES, hosts_file, Login("ada", key)))

    settings = _effective_settings(file, "titan-01")

    # ssh -G prints paths unexpanded: "%%" stands for "%".
    assert settings["userknownhostsfile"].replace("%%", "%") == str(hosts_file)
    assert settings["identityfile"].replace("%%", "%") == str(key)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "${HOME}"], ids=["quote", "line", "variable"])
def test_a_path_that_cannot_be_quoted_is_refused(name: str, tmp_path: Path) -> None:
    """Quotes, control characters and variables cannot be escaped in an ssh configuration."""
    with pytest.raises(InputError, match="cannot express this path"):
        ssh_config(MACHINES, tmp_path / name, Login("ada"))


@pytest.mark.parametrize("user", ["", "ada\n  ProxyCommand x", "-oProxyCommand=x", "a b", 'a"b', "a#b", "\x1b[2J"])
def test_an_invalid_user_name_is_refused(user: str) -> None:
    """A user name cannot inject another setting or option."""
    with pytest.raises(InputError, match="is not a valid user name"):
        Login(user)


def test_ssh_does_not_verify_host_keys_by_dns(config: Path) -> None:
    """The zone with the machines' keys is not signed, so DNS answers could be forged."""
    assert _effective_settings(config, "workbench-cpu-20.us-west-2")["verifyhostkeydns"] == "false"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("titan-01.cellar", "SHA256:..."),
        ("control-1.us-west-2", "run `bedplate node trust control-1.us-west-2`: AWS reads"),
        ("workbench-cpu-2.us-west-2", "run `bedplate node trust workbench-cpu-2.us-west-2`: AWS reads"),
    ],
    ids=["site", "control", "pool"],
)
def test_a_missing_host_key_has_the_command_to_record_it(name: str, fix: str, tmp_path: Path) -> None:
    """AWS reads the key of its instances; for machines of sites the operator gives the fingerprint."""
    (machine,) = (machine for machine in MACHINES if machine.node.name == name)

    (event,) = write_ssh_config(tmp_path, [machine], {}, Login("ada")).missing

    assert fix in event.fix


def test_the_key_of_an_ec2_worker_is_not_recorded(tmp_path: Path) -> None:
    """A worker has the name of its instance, so the fix is an ssh configuration, not `node trust`."""
    pool = next(pool for pool in LAB.pools if pool.group == "train")
    worker = NodeLocation(pool_node(LAB, pool, "train-9f3c21aa.us-west-2", load_catalog()))

    (event,) = write_ssh_config(tmp_path, [worker], {}, Login("ada")).missing

    assert "node trust" not in event.fix
    assert "--ssh-config" in event.fix


def test_a_machine_of_a_pool_is_resolved_by_name(config: Path) -> None:
    """AWS assigns its address, so ssh resolves the name."""
    assert (
        _effective_settings(config, "workbench-cpu-20.us-west-2")["hostname"]
        == "workbench-cpu-20.us-west-2.lab.internal"
    )


def test_an_ambiguous_host_name_is_not_configured(config: Path) -> None:
    """`workbench-gpu-1` exists in two regions, so it needs its place."""
    assert _effective_settings(config, "workbench-gpu-1")["hostname"] == "workbench-gpu-1"


def test_other_hosts_are_not_affected(config: Path) -> None:
    """Hosts outside the fleet keep the operator's settings."""
    assert _effective_settings(config, "github.com")["stricthostkeychecking"] != "true"


def test_an_apply_connects_with_recorded_keys_only(tmp_path: Path) -> None:
    """No shared connection, no agent forwarding, no prompt; a machine without a recorded key is left out."""
    prepared = write_ssh_config(tmp_path, MACHINES[:3], {"nas.cellar": (KEY,)}, Login("ada"))

    (target,) = prepared.targets
    assert target.node.name == "nas.cellar"
    assert [event.node for event in prepared.missing] == ["gate.cellar", "titan-01.cellar"]
    command = [*target.argv[:1], "-G", *target.argv[1:]]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    settings = dict(line.partition(" ")[::2] for line in result.stdout.splitlines())
    assert settings["userknownhostsfile"] == str(tmp_path / "known_hosts")
    assert settings["batchmode"] == "yes"
    assert settings["controlmaster"] == "false"
    assert settings["forwardagent"] == "no"


@pytest.mark.parametrize(
    ("script", "accounts"),
    [
        ("printf 'grace pts/0 09:00\nada pts/1 10:00\nada pts/2 10:01\n'", ("ada", "grace")),
        ("true", ()),
        ("exit 255", None),
    ],
    ids=["two people", "nobody", "no connection"],
)
def test_the_accounts_that_are_logged_in_are_read_from_who(script: str, accounts: tuple[str, ...] | None) -> None:
    """A machine that cannot be asked is not the same as one without logins."""
    target = Target(permanent_nodes(plan_of(EXAMPLES / "lab.yaml"))[0], ("sh", "-c", script))

    assert logged_in(target) == accounts
