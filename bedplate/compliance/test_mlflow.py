"""Rules for the hub: MLflow."""

from testinfra.host import Host

from bedplate.compliance.settings import applies_if, differing_files, unit_overrides
from roles.mlflow.role import DIGEST, SERVICE, Mlflow

pytestmark = applies_if(lambda node: node.hub is not None)


def test_mlflow_has_the_planned_files(host: Host) -> None:
    """The program of the records and its unit are those of the plan."""
    changed = [*differing_files(host, Mlflow().files()), *unit_overrides(host, SERVICE)]

    assert not changed, f"changed: {', '.join(changed)}"


def test_mlflow_runs_in_the_planned_environment(host: Host) -> None:
    """The server has the locked packages: no upgrade has failed, and only root can change them."""
    found = host.check_output("readlink /opt/mlflow/current; find /opt/mlflow ! -type l -perm /022 | head -n 3")

    assert found == DIGEST, "read `journalctl -u mlflow`"


def test_only_the_group_of_nginx_reaches_mlflow(host: Host) -> None:
    """MLflow answers from the database, on a socket in a folder of its group: it asks nobody for a token."""
    folder = host.file("/run/mlflow")
    ask = "curl -fsS --max-time 20 --unix-socket /run/mlflow/socket http://localhost/api/2.0/mlflow/experiments/search"

    assert (folder.user, folder.group, folder.mode) == ("mlflow", "mlflow", 0o750)
    assert "experiments" in host.check_output(f"{ask}?max_results=1")
