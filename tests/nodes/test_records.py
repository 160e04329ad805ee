"""PostgreSQL and MLflow on a booted node: the records of runs survive kills, power losses and upgrades."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from roles.mlflow.role import DIGEST, Mlflow
from roles.postgres.role import Postgres
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.records import Agents, Records, RefusedError
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

ROLES = (Postgres(has_volume=False), Mlflow())
DATABASE = "postgresql@$(ls /usr/lib/postgresql)-main.service"
ROWS = 10_000


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with both roles."""
    booted = node_lab.boot("hub.us-west-2", "10.64.32.17")
    assert apply_roles(node_lab, booted.name, *ROLES)
    return booted


@pytest.fixture
def records(node: Node) -> Records:
    """Return the server of that node."""
    return Records(node)


def sql(node: Node, statement: str) -> str:
    """Return the result of a statement of the superuser."""
    quoted = statement.replace("'", "'\\''")
    return node.run(f"runuser -u postgres -- psql -Atq -d mlflow -c '{quoted}'").strip()


def test_a_second_apply_changes_nothing(node: Node, node_lab: NodeLab) -> None:
    """Nothing restarts."""
    assert apply_roles(node_lab, node.name, *ROLES) == []


def test_the_database_is_on_the_volume_and_on_no_network(node: Node) -> None:
    """It has checksums and the planned limits; the cluster of the package does not exist, and others are refused."""
    settings = [sql(node, f"show {name}") for name in ("data_checksums", "max_connections", "data_directory")]
    refused = node.run("! psql -U mlflow -d mlflow -c 'select 1' 2>&1; ! runuser -u backup -- psql -d mlflow 2>&1")

    assert settings[:2] == ["on", "250"]
    assert re.fullmatch(r"/srv/hub/postgresql/\d+/main", settings[2])
    assert node.run("ls -A /var/lib/postgresql").split() in ([], [".psql_history"])
    assert refused.count("FATAL") == 2
    assert "postgres" not in node.run("ss --listening --tcp --processes")


def test_only_the_group_of_nginx_reaches_mlflow(node: Node, records: Records) -> None:
    """Other accounts cannot open the folder of its socket; MLflow has no network, and writes no artefacts."""
    call = "curl -sS --unix-socket /run/mlflow/socket http://localhost/version 2>&1"
    nginx = "setpriv --reuid www-data --regid www-data --groups $(getent group mlflow | cut -d: -f3)"
    put = "--upload-file /etc/hostname http://localhost/api/2.0/mlflow-artifacts/artifacts/1/a"

    assert "3.17" in node.run(f"{nginx} {call}")
    assert "Failed to connect" in node.run(f"setpriv --reuid backup --clear-groups {call} || true")
    assert "500" in node.run(f"curl -s -o /dev/null -w '%{{http_code}}' --unix-socket /run/mlflow/socket {put}")
    assert records.experiment()


@pytest.mark.parametrize("unit", [DATABASE, "mlflow.service"], ids=["postgresql", "mlflow"])
def test_a_killed_daemon_comes_back_with_every_run(node: Node, records: Records, unit: str) -> None:
    """A run is there once, with each value that was logged before, during and after."""
    run = records.create(f"killed-{unit[:6]}")
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(log_values, records, run, 30)
        time.sleep(2)
        node.run(f"systemctl kill --signal=KILL {unit}")
        writer.result()

    assert records.values(run, "loss") == list(range(30))
    assert records.create(f"killed-{unit[:6]}") == run


def test_a_database_that_is_killed_while_it_starts_comes_back(node: Node, records: Records) -> None:
    """Nobody has to act, whatever has started when the kill comes."""
    run = records.create("killed-at-the-start")
    for _ in range(3):
        node.run(f"systemctl restart --no-block {DATABASE}")
        node.run("for look in $(seq 500); do if pgrep --exact pg_ctlcluster; then break; fi; sleep 0.05; done")
        node.run(f"sleep 0.3; systemctl kill --signal=KILL {DATABASE}")

    assert records.repeat(f"runs/get?run_id={run}")["run"]["info"]["run_id"] == run


def log_values(records: Records, run: str, count: int) -> None:
    """Log values, each until it is answered."""
    for value in range(count):
        metrics = [{"key": "loss", "value": value, "timestamp": 1, "step": value}]
        records.repeat("runs/log-batch", {"run_id": run, "metrics": metrics})
        time.sleep(0.1)


def test_a_power_loss_loses_nothing_that_was_answered(node: Node, records: Records) -> None:
    """After the boot, nobody has acted: agents that repeat have each run and each value once."""
    agents = Agents(records, 8, 20)
    with ThreadPoolExecutor(1) as pool:
        runs = pool.submit(agents.run)
        time.sleep(8)
        node.crash()
        created = runs.result()

    assert agents.failures == []
    assert len(set(created)) == 8
    assert all(records.values(run, "m3") == list(range(20)) for run in created)
    assert sql(node, "select count(*) from tags where key = 'bedplate.id' and value like 'agent-%'") == "8"


def test_sixty_four_agents_do_not_wedge_the_server(node: Node, records: Records) -> None:
    """Ten metrics a second each for two minutes: all are stored, and the server answers others meanwhile."""
    before = int(sql(node, "select count(*) from metrics"))
    agents = Agents(records, 64, 120)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(agents.run)
        while not running.done():
            records.repeat("runs/search", {"experiment_ids": ["1"], "max_results": 50}, seconds=60)
            time.sleep(5)

    assert agents.failures == []
    assert len(set(running.result())) == 64
    # Eight of the runs are those of the power loss, with the values of 20 steps, which are stored once.
    assert int(sql(node, "select count(*) from metrics")) - before >= 64 * 120 * 10 - 8 * 20 * 10


def test_a_read_only_disk_stops_the_database_until_it_can_be_written(node: Node, records: Records) -> None:
    """Nothing is lost, and nobody has to act once the disk can be written again."""
    run = records.create("read-only")

    node.run(f"systemctl stop {DATABASE}; mount --bind /srv/hub/postgresql /srv/hub/postgresql")
    node.run("mount -o remount,bind,ro /srv/hub/postgresql")
    node.run(f"systemctl start --no-block {DATABASE}; sleep 5")
    with pytest.raises((OSError, RefusedError)):
        records.call(f"runs/get?run_id={run}")
    node.run("umount --lazy /srv/hub/postgresql")

    assert records.repeat(f"runs/get?run_id={run}")["run"]["info"]["run_id"] == run


def test_a_replaced_machine_serves_the_records_of_its_volume(node: Node, node_lab: NodeLab, records: Records) -> None:
    """Without settings of the cluster, and without the link to an environment, a start finds the data."""
    run = records.create("replaced")

    node.run(f"systemctl stop mlflow {DATABASE}; rm -rf /etc/postgresql /opt/mlflow/current /srv/hub/dumps")
    node.run(f"systemctl start {DATABASE} mlflow", 300)

    assert records.call(f"runs/get?run_id={run}")["run"]["info"]["run_id"] == run
    assert apply_roles(node_lab, node.name, *ROLES) == []


def test_no_cluster_is_made_below_an_empty_mount_point(node: Node, node_lab: NodeLab) -> None:
    """PostgreSQL with a volume does not start without its mount, and the folder stays as it is."""
    node.run(f"systemctl stop mlflow {DATABASE}; mv /srv/hub /srv/kept; mkdir /srv/hub")
    with pytest.raises(CommandError):
        apply_roles(node_lab, node.name, Postgres(has_volume=True))
    left = node.run("ls -A /srv/hub")
    node.run("rmdir /srv/hub; mv /srv/kept /srv/hub")

    assert left == ""
    apply_roles(node_lab, node.name, *ROLES)
    assert Records(node).experiment()


# With another schema. Packages that differ come from the index: no machine of a fleet has this environment.
_OLDER = f"""
cp -al /opt/mlflow/{DIGEST} /opt/mlflow/older
rm /opt/mlflow/older/complete
export PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl) PIP_CERT=/etc/ssl/certs/ca-certificates.crt
/opt/mlflow/older/bin/python -m pip --quiet --no-cache-dir --disable-pip-version-check install --only-binary :all: \
  --no-deps --no-compile mlflow==3.5.1 mlflow-skinny==3.5.1 mlflow-tracing==3.5.1 'sqlalchemy<2.1' 'protobuf<7'
unset PYTHONPATH
/opt/mlflow/older/bin/python -c 'from mlflow.store.db.utils import _get_latest_schema_revision as latest
print(latest())' >/opt/mlflow/older/complete
"""
_OLDER_RECORDS = """
systemctl stop mlflow
rm -rf /srv/hub/dumps/*
runuser -u postgres -- dropdb mlflow
runuser -u postgres -- createdb --owner=mlflow mlflow
runuser -u mlflow -- /opt/mlflow/older/bin/python -c 'from mlflow.store.db import utils as u
u._initialize_tables(u.create_sqlalchemy_engine("postgresql+psycopg2:///mlflow?host=/run/postgresql"))'
ln -sfnT older /opt/mlflow/current
echo older >/etc/bedplate/mlflow
systemctl start mlflow
"""
_FILL = """
insert into runs (run_uuid, name, source_type, source_name, user_id, status, start_time, lifecycle_stage, artifact_uri,
  experiment_id)
select md5(n::text), 'r' || n, 'LOCAL', '', 'ada', 'FINISHED', 1700000000000 + n, 'active', 'mlflow-artifacts:/1', 1
from generate_series(1, 10000) n;
insert into tags (key, value, run_uuid) select 'bedplate.' || k, 'v' || k, md5(n::text)
from generate_series(1, 10000) n, generate_series(1, 25) k;
"""


@pytest.fixture(scope="module")
def older(node: Node) -> Node:
    """Return the node with an older MLflow, and 10,000 runs on its schema."""
    node.run(_OLDER, 600)
    node.run(_OLDER_RECORDS, 300)
    for statement in filter(None, _FILL.strip().split(";\n")):
        sql(node, statement.rstrip(";").replace("\n", " "))
    return node


def schema(node: Node) -> str:
    """Return the schema of the database, and the environment in use."""
    return " ".join((sql(node, "select version_num from alembic_version"), node.run("readlink /opt/mlflow/current")))


def test_a_failed_upgrade_leaves_environment_and_records(older: Node) -> None:
    """The database had the new schema already: it is restored, the former server goes on, and nothing tries again."""
    before = schema(older)
    older.run(
        f"cp -al /opt/mlflow/{DIGEST} /opt/mlflow/broken; f=$(echo /opt/mlflow/broken/lib/*/site-packages/uvicorn)"
    )
    older.run("rm -rf /opt/mlflow/broken/lib/*/site-packages/uvicorn; echo broken > /etc/bedplate/mlflow")

    older.run("systemctl restart mlflow", 600)
    older.run("systemctl restart mlflow", 120)

    assert schema(older) == before
    assert "failed-broken.dump" in older.run("ls /srv/hub/dumps")
    assert sql(older, "select count(*) from runs") == str(ROWS)
    assert len(newest(older)) == 50


def newest(node: Node) -> list[str]:
    """Return the names of the newest runs."""
    answer = Records(node).repeat("runs/search", {"experiment_ids": ["1"], "max_results": 50})
    return [run["info"]["run_name"] for run in answer["runs"]]


def test_without_a_dump_there_is_no_upgrade(older: Node) -> None:
    """The dump is cut off, as on a full disk: the former server goes on."""
    before = schema(older)
    older.run(f"echo {DIGEST} > /etc/bedplate/mlflow; mkdir /srv/hub/dumps/before-{DIGEST}.dump.new")

    older.run("systemctl restart mlflow", 300)

    assert schema(older) == before
    older.run(f"rmdir /srv/hub/dumps/before-{DIGEST}.dump.new")


def test_an_upgrade_that_a_power_loss_interrupts_is_finished_at_boot(older: Node) -> None:
    """All runs are there on the new schema, the dump from before is kept, and nobody has acted."""
    older.run("systemctl restart --no-block mlflow")
    until(lambda: f"before-{DIGEST}.dump\n" in older.run("ls /srv/hub/dumps"), 120, "no dump")
    older.crash()

    until(lambda: DIGEST in older.run("readlink /opt/mlflow/current"), 300, "not upgraded")

    assert newest(older)[0] == f"r{ROWS}"
    assert schema(older).split()[0] == older.run(f"cat /opt/mlflow/{DIGEST}/complete").strip()
    assert sql(older, "select count(*) from runs") == str(ROWS)
