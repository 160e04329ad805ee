"""The hub on a booted node with the roles of its machine: from ssh over the forced command to nginx."""

import pytest

from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.hub import FILES, HOST, RUN
from tests.testlab.machines.lab import FAILED, FleetFolder, check_defects, make_fleet_folder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

NAME, ADDRESS = "hub.us-west-2", "10.64.32.17"
ROLES = tuple(word for name in ("people", "postgres", "mlflow", "hub", "hardened") for word in ("--role", name))
LOG = f"{FILES}/1/{RUN}/artifacts/logs/0/0/000000"
PACK = f"{FILES}/packs/grace/{'1' * 40}-0.pack"
_DEFECTS = defects_at(Where.HUB)


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab) -> FleetFolder:
    """Return an operator's folder whose grace, no administrator, has the operator's key."""
    folder = make_fleet_folder(node_lab, node_lab.folder)
    key = " ".join(node_lab.public.split()[:2])
    folder.edit(r"grace: \{keys: \[[^]]*\]", f'grace: {{keys: ["{key}"]')
    folder.record()
    return folder


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, lab: FleetFolder) -> Node:
    """Return the hub with these roles applied. A bind mount of systemd stands in for its volume."""
    booted = node_lab.boot(NAME, ADDRESS)
    unit = r"[Mount]\nWhat=/srv/volume\nWhere=/srv/hub\nOptions=bind\n"
    booted.run(f"mkdir /srv/volume; printf '{unit}' >/etc/systemd/system/srv-hub.mount; systemctl start srv-hub.mount")
    assert Operator(node_lab, lab.fleet).changes(NAME, *ROLES)[NAME]
    (node_lab.folder / "tls.crt").write_text(booted.run("cat /srv/hub/keys/tls.crt"))
    return booted


def ask(node: Node, text: str, target: str, *words: str) -> tuple[str, str]:
    """Send a request from another machine, which trusts the hub's certificate only; return status and body."""
    certificate = node.ssh_config.with_name("tls.crt")
    options = ("--silent", "--show-error", "--noproxy", "*", "--max-time", "20", "--cacert", str(certificate))
    to = ("--resolve", f"{HOST}:443:{ADDRESS}", "--header", f"Authorization: Bearer {text}", *words)
    done = node.workstation.run("curl", *options, *to, "--write-out", "\n%{http_code}", f"https://{HOST}{target}")
    body, _, status = done.stdout.rpartition("\n")
    return status, body + done.stderr


def token_of(node: Node, person: str = "grace", words: str = "bp-token") -> str:
    """Return the token that a person gets by ssh."""
    done = node.ssh(words, user=person)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def status_of_grace(node: Node) -> str:
    """Return the answer to a request of grace."""
    return ask(node, token_of(node), "/bedplate/whoami")[0]


def test_a_person_gets_a_token_by_ssh_and_nothing_else(node: Node) -> None:
    """Whatever grace asks sshd for is the token program, with the scope in her words; an administrator has a shell."""
    token = token_of(node)
    shell = node.ssh("id; cat /etc/shadow", user="grace")

    assert token.split(".")[2] == "person"
    assert token_of(node, words=f"bp-token run:{RUN}").split(".")[2] == f"run:{RUN}"
    assert "uid=" not in shell.stdout + shell.stderr
    assert "a scope is person" in shell.stderr
    assert "another person owns this run" in node.ssh(f"bp-token run:{RUN}", user="ada").stderr
    assert node.ssh("id -un", user="ada").stdout.strip() == "ada"


def test_a_token_opens_the_hub(node: Node) -> None:
    """By the real programs: pack and log are written and read, MLflow knows no such run, and others are refused."""
    token, run = token_of(node), token_of(node, words=f"bp-token run:{RUN}")

    assert ask(node, token, PACK, "--request", "PUT", "--data-binary", "pack")[0] == "201"
    assert ask(node, token, PACK) == ("200", "pack")
    assert ask(node, run, LOG, "--request", "PUT", "--data-binary", "line")[0] == "201"
    assert ask(node, token_of(node, "ada"), LOG) == ("200", "line")
    assert ask(node, token_of(node, "ada"), PACK, "--request", "PUT", "--data-binary", "other")[0] == "403"
    assert ask(node, "forged", "/")[0] == "401"
    status, body = ask(node, token, f"/api/2.0/mlflow/runs/get?run_id={RUN}")
    assert (status, "RESOURCE_DOES_NOT_EXIST" in body) == ("404", True)


def test_files_and_keys_have_one_owner_each(node: Node) -> None:
    """The record's group reads artefacts; the check has no access to the key of TLS, nor nginx to that of tokens."""
    assert node.run(f"stat -c '%U %G %a' /srv/hub/artifacts/1/{RUN}/artifacts/logs/0/0/000000").split() == [
        *("www-data", "mlflow", "640"),
    ]
    for account, path in (("bedplate-hub", "keys/tls.key"), ("www-data", "keys/tokens"), ("www-data", "tokens/runs")):
        done = node.run(f"setpriv --reuid {account} --regid {account} --init-groups cat /srv/hub/{path} 2>&1 || true")
        assert "Permission denied" in done


def test_a_second_apply_changes_nothing(node: Node, node_lab: NodeLab, lab: FleetFolder) -> None:
    """Keys and certificate stay, and nothing restarts."""
    before = node.run("sha256sum /srv/hub/keys/*")

    assert Operator(node_lab, lab.fleet).changes(NAME, *ROLES) == {NAME: []}
    assert node.run("sha256sum /srv/hub/keys/*") == before


def test_logs_are_rotated_and_have_no_token(node: Node) -> None:
    """After a rotation nginx writes to the new file; neither file, nor the journal, has the token of a request."""
    token = token_of(node)
    ask(node, token, "/bedplate/whoami")
    node.run("logrotate --force /etc/logrotate.d/nginx")
    ask(node, token, "/bedplate/whoami?again")

    assert "grace person GET" in node.run("cat /var/log/nginx/access.log")
    assert token not in node.run("cat /var/log/nginx/*.log*; journalctl --no-pager --boot")


@pytest.mark.parametrize("unit", ["bedplate-hub.service", "nginx.service"])
def test_a_killed_daemon_is_back_at_once(node: Node, unit: str) -> None:
    """Tokens stay valid, and nobody has to act."""
    token = token_of(node)

    node.run(f"systemctl kill --signal=KILL {unit}")

    until(lambda: ask(node, token, "/bedplate/whoami")[0] == "200", 20, "the hub does not answer")


def test_a_power_loss_keeps_keys_owners_and_removed_people(node: Node) -> None:
    """The same certificate and tokens are valid; a removed person is refused from her next request on, and later."""
    token, run = token_of(node, "ada"), token_of(node, words=f"bp-token run:{RUN}")

    node.run("bedplate-hub remove 20001")
    refused = ask(node, run, "/bedplate/whoami")
    node.crash()

    assert (refused[0], "no person of the fleet" in refused[1]) == ("403", True)
    assert ask(node, token, "/bedplate/whoami")[0] == "200"
    assert ask(node, run, "/bedplate/whoami")[0] == "403"
    assert node.ssh("bp-token", user="grace").stderr.endswith("error: no person of the fleet\n")
    assert "another person owns" in node.ssh(f"bp-token run:{RUN}", user="ada").stderr
    node.run("rm /srv/hub/tokens/removed")
    assert status_of_grace(node) == "200"


@pytest.fixture(scope="module")
def rule_outcomes(node: Node, lab: FleetFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Return the outcome of each rule with its defect."""
    return check_defects(lab, node, _DEFECTS, tmp_path_factory.mktemp("defects"))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on the applied hub, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED
