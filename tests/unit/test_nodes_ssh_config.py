"""The OpenSSH configuration of a fleet, as the real ssh understands it."""

import subprocess
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.nodes.ssh_config import Login, Reached, ssh_config
from bedplate.nodes.way import ways
from bedplate.plan.nodes import pool_node, pool_nodes, standing_nodes
from tests.support.declared import EXAMPLES, plan_of

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
