"""Rules for the hub: its configuration, its keys, its files, and that nobody is let in without a token."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files, unit_overrides
from bedplate.plan.nodes import NodePlan
from roles.hub.role import BACKUP, KEYS, SERVICE, SOCKET, hub_role

pytestmark = applies_if(lambda node: node.hub is not None)


def test_hub_has_the_planned_configuration(host: Host, node: NodePlan) -> None:
    """The settings of nginx, the check of requests, its list of people and its units are those of the plan."""
    assert node.hub
    files = hub_role(node.hub, node.accounts).files()
    changed = [*differing_files(host, files), *unit_overrides(host, KEYS, SERVICE, SOCKET)]

    assert not changed, f"changed: {', '.join(changed)}"


def test_keys_and_records_of_tokens_are_private(host: Host) -> None:
    """Only root reads the keys, and only the check writes who owns a run and who was removed."""
    owners = host.check_output("stat --format %U /srv/hub/keys /srv/hub/tokens").splitlines()
    readable = host.check_output("find /srv/hub/keys /srv/hub/tokens -perm /077").split()

    assert owners == ["root", "bedplate-hub"]
    assert not readable, f"readable by others: {', '.join(readable)}"


def test_only_nginx_writes_packs_and_artefacts(host: Host) -> None:
    """The record reads them by its group; no other account has access."""
    folder = host.file("/srv/hub/artifacts")

    assert (folder.user, folder.group, oct(folder.mode)) == ("www-data", "mlflow", "0o2750")


def test_nobody_is_let_in_without_a_token(host: Host, node: NodePlan) -> None:
    """Without a token no address of the hub answers."""
    assert node.hub
    name = node.hub.host
    ask = "curl --silent --output /dev/null --write-out '%{http_code} ' --max-time 20 --cacert /srv/hub/keys/tls.crt"
    answers = [
        host.run(f"{ask} --resolve {name}:443:127.0.0.1 https://{name}{path}").stdout.strip()
        for path in ("/", "/fleet.json", "/version", "/api/2.0/mlflow/runs/get")
    ]

    assert answers == ["401"] * 4, f"the hub answers with {', '.join(answers)}"


def test_last_backup_is_recent(host: Host) -> None:
    """One of the last two nights has succeeded; a new volume has as long for its first one."""
    recent = host.run("find /srv/hub/dumps/succeeded /srv/hub/keys/tls.crt -mmin -3000").stdout

    assert recent, f"no backup of the last two nights: `bedplate hub logs {BACKUP}` shows why"
    assert host.service(f"{BACKUP}.timer").is_enabled, f"{BACKUP}.timer is not enabled"
