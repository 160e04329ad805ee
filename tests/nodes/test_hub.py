"""The hub on a booted node with the roles of its machine: from ssh over the forced command to nginx."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.hub import FILES, HOST, RUN
from tests.testlab.machines.lab import FAILED, FleetFolder, check_defects, make_fleet_folder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator
from tests.testlab.network.netlab import until
from tests.testlab.run import ROOT

pytestmark = pytest.mark.nightly

NAME, ADDRESS = "hub.us-west-2", "10.64.32.17"
ROLES = tuple(
    word for name in ("people", "postgres", "mlflow", "hub", "prometheus", "hardened") for word in ("--role", name)
)
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


def test_a_person_reads_metrics_with_the_token(node: Node) -> None:
    """Both daemons have the rules of the fleet, and survive their first apply; no other address answers."""
    query = "/prometheus/api/v1/query?query=sum(up)"

    until(lambda: '"2"' in ask(node, token_of(node), query)[1], 90, "Prometheus asks nobody")

    assert ask(node, token_of(node), "/prometheus/metrics")[0] == "403"
    assert ask(node, token_of(node), "/prometheus/api/v1/rules")[0] == "403"
    assert "rules/layer.json" in node.run("curl --silent http://127.0.0.1:9090/api/v1/rules")
    units = "systemctl show --property=NRestarts prometheus prometheus-alertmanager"
    assert node.run(units).split() == ["NRestarts=0", "NRestarts=0"]


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


# --- attempts of a person ---

_WEB = "http://localhost"
_KEYS = "/srv/hub/keys/tokens /srv/hub/keys/tls.key /run/credentials/bedplate-hub.service/tokens"
_CHECK = "$(pgrep --uid bedplate-hub | head -1)"
_DATABASE = "psql --username mlflow --dbname mlflow --command 'select 1'"
# Each succeeds if the attempt does. A person has no shell there: this is what one could do with it.
_TRIES: Mapping[str, str] = {
    "MLflow": f"curl --fail --unix-socket /run/mlflow/socket {_WEB}/version",
    "MLflow by TCP": f"curl --fail {_WEB}:5000/version",
    "database": f"{_DATABASE} --host /run/postgresql",
    "database as oneself": "psql --host /run/postgresql --dbname mlflow --command 'select 1'",
    "database by TCP": f"{_DATABASE} --host 127.0.0.1",
    "check without a token": "curl --fail --unix-socket /run/bedplate-hub/check --header 'X-Method: GET'"
    f" --header 'X-Target: /version' {_WEB}/check",
    "keys": f"cat {_KEYS} | grep .",
    "owners of runs": "cat /srv/hub/tokens/runs",
    "files": "ls /srv/hub/artifacts /srv/hub/uploads /srv/hub/dumps | grep -v :",
    "metrics": f"curl --fail {_WEB}:9090/api/v1/query?query=up",
    "state of alerts": f"curl --fail {_WEB}:9093/api/v2/status",
    "another alert": f"curl --fail --data '{{\"alerts\": []}}' {_WEB}:9095/bedplate/alerts",
    "data of metrics": "ls /srv/hub/metrics",
    "logs of requests": "cat /var/log/nginx/access.log",
    "memory of the check": f"head -c 1 /proc/{_CHECK}/environ | grep -z .",
    "another mint": "rm -f /run/bedplate-hub/mint && touch /run/bedplate-hub/mint",
    "service": "systemctl restart bedplate-hub",
    "removal of a person": "bedplate-hub remove 20000",
    "backup": "/usr/local/lib/bedplate/hub-backup save",
    "rotation": "/usr/local/lib/bedplate/hub-backup rotate",
}


def test_an_account_of_the_hub_reaches_no_part_of_it(node: Node) -> None:
    """Not even with a process on it: neither MLflow, database, keys and files, nor the check without a token."""
    account = "setpriv --reuid 20001 --regid 20001 --clear-groups timeout 20 sh -c"
    tried = {name: f"{account} {shlex.quote(text)}" for name, text in _TRIES.items()}
    script = "".join(f"if {text} >/dev/null 2>&1; then echo '{name}'; fi\n" for name, text in tried.items())

    assert node.run(script).splitlines() == []


def ssh(node: Node, *words: str) -> str:
    """Call ssh as grace with options and words, for at most ten seconds; return all output."""
    done = node.workstation.run("timeout", "10", "ssh", "-F", str(node.ssh_config), "-l", "grace", *words)
    return done.stdout + done.stderr


_LISTEN = ("-o", "ExitOnForwardFailure=yes", "-N", "-R")
_VARIABLES = "BASH_ENV=/tmp/x PYTHONSTARTUP=/tmp/x LD_PRELOAD=/tmp/x SSH_ORIGINAL_COMMAND=id"


@pytest.mark.parametrize(
    "words",
    [
        ("-W", "127.0.0.1:443", NAME),
        ("-W", "169.254.169.254:80", NAME),
        (*_LISTEN, "18022:127.0.0.1:22", NAME),
        (*_LISTEN, "/tmp/s:127.0.0.1:22", NAME),  # noqa: S108  where everybody may write
        (*_LISTEN, "0", NAME),
        ("-s", NAME, "sftp"),
        ("-s", NAME, "netconf"),
        (NAME, "scp -t /tmp"),
        (NAME, "rsync --server -e.s . /tmp"),
        (NAME, "bp-token 'person; id >/tmp/made'"),
        (NAME, "bp-token $(id)"),
        (NAME, "bp-token study:ada-1"),
        (NAME, "bp-token person\nid"),
        (NAME, f"bp-token run:{'9' * 31}\u0663"),
        (NAME, f"bp-token {'a' * 100_000}"),
        ("-t", "-t", NAME, "bash"),
        ("-o", f"SetEnv={_VARIABLES}", NAME),
        ("-A", "-X", "-Y", NAME, "env"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_ssh_opens_nothing_on_the_hub(words: tuple[str, ...], node: Node) -> None:
    """No forwarding, no files, no shell, and no variable: at most the own token comes back."""
    output = ssh(node, *words)
    tokens = [line for line in output.splitlines() if line.count(".") == 3 and line[:1].isdigit()]

    assert not any(word in output for word in ("uid=", "SSH-2.0", "HTTP/", "HOME=", "root"))
    assert all(line.startswith("20001.") and ".person." in line for line in tokens)
    assert node.run("ls /tmp/made /tmp/s 2>/dev/null || true") == ""
    assert ":18022" not in node.run("ss --listening --tcp --numeric")


def test_a_socket_of_the_hub_is_not_forwarded(node: Node, tmp_path: Path) -> None:
    """Neither that of MLflow nor that of the check."""
    for number, path in enumerate(("/run/mlflow/socket", "/run/bedplate-hub/check")):
        own = tmp_path / str(number)
        login = f"timeout 8 ssh -F {node.ssh_config} -l grace -N -L {own}:{path} {NAME}"
        call = f"sleep 3; curl --silent --max-time 4 --unix-socket {own} {_WEB}/version; wait"

        assert node.workstation.run("sh", "-c", f"{login} & {call}").stdout == ""


@dataclass(frozen=True)
class Sender:
    """Grace, whose bodies are in a file because of their size."""

    node: Node
    token: str
    body: Path

    def post(self, target: str, document: object, *words: str) -> tuple[str, str]:
        """Send a document, or a text as it is; return status and body of the answer."""
        self.body.write_text(document if isinstance(document, str) else json.dumps(document))
        header = ("--header", "Content-Type: application/json", "--data-binary", f"@{self.body}")
        return ask(self.node, self.token, target, *header, "--max-time", "100", *words)


@pytest.fixture
def grace(node: Node, tmp_path: Path) -> Sender:
    """Return grace with a token."""
    return Sender(node, token_of(node), tmp_path / "body")


def test_graphql_has_searches_only(grace: Sender) -> None:
    """People may send every query: a new version of MLflow that has other fields gets a look."""
    fields = "fields { name }"
    query = f"{{ __schema {{ queryType {{ {fields} }} mutationType {{ {fields} }} subscriptionType {{ name }} }} }}"
    status, body = grace.post("/graphql", {"query": query})
    schema = json.loads(body)["data"]["__schema"]
    found = [f"{kind} {field['name']}" for kind in ("query", "mutation") for field in schema[f"{kind}Type"]["fields"]]

    assert (status, schema["subscriptionType"]) == ("200", None)
    assert sorted(found) == (ROOT / "tests/data/hub/graphql.txt").read_text().splitlines()


@pytest.mark.parametrize(
    "path", ["../../../keys/tokens", "/etc/passwd", "..", "%2e%2e/%2e%2e", "a/../../../../keys", "file:///etc/passwd"]
)
def test_no_path_in_a_body_leads_out_of_a_run(path: str, grace: Sender) -> None:
    """Bodies are MLflow's to check: of GraphQL, and of a GET, which MLflow reads without a query."""
    _, created = grace.post("/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": 1})
    run = json.loads(created)["run"]["info"]["run_id"]
    query = "query($input: MlflowListArtifactsInput!) { mlflowListArtifacts(input: $input) { files { path } } }"

    listed = grace.post("/api/2.0/mlflow/artifacts/list", {"run_id": run, "path": path}, "--request", "GET")
    found = grace.post("/graphql", {"query": query, "variables": {"input": {"runId": run, "path": path}}})

    assert (listed[0], "Invalid path" in listed[1]) == ("400", True)
    assert "Invalid path" in found[1]


@pytest.mark.parametrize(
    "condition",
    [
        "attributes.run_id = 'x'; drop table runs",
        "tags.a = 'x') or ('1'='1",
        "name = 'x' OR 1=1",
        "attributes.start_time = 1 union select 1",
        "tags.`a'); drop table runs --` = 'x'",
        "tags.a = ''' or 1=1 --'",
        "metrics.a > 1e999",
    ],
)
def test_a_filter_is_no_statement_of_the_database(condition: str, grace: Sender) -> None:
    """MLflow parses it: it is refused, or finds nothing, and the table is there."""
    grace.post("/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": 1})
    search = {"experiment_ids": ["0", "1"], "filter": condition}

    status, answer = grace.post("/api/2.0/mlflow/runs/search", search)

    assert status == "400" or (status, json.loads(answer)) == ("200", {})
    assert "run_id" in grace.post("/api/2.0/mlflow/runs/search", {**search, "filter": ""})[1]


def test_a_worker_of_mlflow_that_is_killed_is_replaced(grace: Sender) -> None:
    """The kernel kills it at the limit of memory; the unit and the database go on. Deep documents are only refused."""
    limits = grace.node.run("systemctl show mlflow --property=MemoryMax --property=OOMPolicy")
    pids = "systemctl show --property=MainPID mlflow 'postgresql@*'"
    before = grace.node.run(pids)
    deep = [grace.post("/api/2.0/mlflow/runs/search", body)[0] for body in ("[" * 1_000_000, '{"a":' * 200_000)]

    # Nodes of the tests have no control group of memory.
    grace.node.run("kill -KILL $(pgrep --newest --uid mlflow --full spawn_main)")

    search = "/api/2.0/mlflow/experiments/search?max_results=1"
    until(lambda: ask(grace.node, grace.token, search)[0] == "200", 60, "MLflow does not answer")
    until(lambda: grace.node.run("pgrep --count --uid mlflow --full spawn_main").strip() == "2", 60, "one worker")
    assert (deep, grace.node.run(pids)) == (["500", "500"], before)
    assert ("OOMPolicy=continue" in limits, "infinity" in limits) == (True, False)


@pytest.fixture(scope="module")
def rule_outcomes(node: Node, lab: FleetFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Return the outcome of each rule with its defect."""
    return check_defects(lab, node, _DEFECTS, tmp_path_factory.mktemp("defects"))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on the applied hub, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED
