"""Data of PostgreSQL 15 of Debian 12, on a booted Debian 13 with PostgreSQL 17: a new machine finds an old volume."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pytest

from roles.base import file_text
from roles.postgres.role import Postgres
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.network.netlab import until
from tests.testlab.run import lack

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(RELEASE != "trixie", reason="Debian 12 has no newer PostgreSQL: make test-nodes RELEASE=trixie"),
]

OLD = Path("/usr/lib/postgresql/15/bin")
FOLDER = "/srv/hub/postgresql"
_ROWS = """create role mlflow; create database mlflow owner mlflow;
\\c mlflow
create table runs as select n from generate_series(1, 10000) n;
"""
_COUNT = "select count(*) from runs"
# The package, which is installed later, puts its program at the other path. /srv/cut runs after half a dump.
_CUT = """
program=/usr/lib/postgresql/17/bin/pg_dumpall
mkdir -p ${program%/*}
dpkg-divert --quiet --rename --divert $program.real $program
cat >$program <<'END'
#!/bin/sh
[ -e /srv/cut ] || exec $0.real "$@"
$0.real "$@" | head -c 20000
. /srv/cut
END
chmod 755 $program
echo 'sleep 600' >/srv/cut
"""


def run_as_postgres(*words: str, text: str = "") -> str:
    """Run a program of PostgreSQL 15 of this machine."""
    command = ("runuser", "-u", "postgres", "--", *words)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd="/", timeout=120).stdout


@pytest.fixture(scope="module")
def volume() -> Iterator[Path]:
    """Yield a folder with data of PostgreSQL 15, as a power loss leaves it, and the programs beside it."""
    if not (OLD / "initdb").exists():
        lack("needs postgresql-15, which is Debian 12's")
    # postgres can enter it.
    folder = Path(mkdtemp(prefix="hub-", dir="/var/tmp"))
    folder.chmod(0o755)
    settings = folder / "postgresql.conf"
    settings.write_text("listen_addresses = ''\n")
    # Without the settings of the package's cluster, which this machine may have.
    program = file_text("postgres/database").partition("# The package knows")[0]
    for path, other in (("/srv/hub", folder), ("/run/bedplate-database", folder / "run")):
        program = program.replace(path, str(other))
    subprocess.run(["bash", "-c", program, "database", "15-main"], check=True, timeout=120)
    data = folder / "postgresql/15/main"
    options = f"-c config_file={settings} -c hba_file={data}/pg_hba.conf -c unix_socket_directories={folder}/run"
    run_as_postgres(str(OLD / "pg_ctl"), "start", "-s", "-D", str(data), "-l", f"{folder}/run/log", "-o", options)
    run_as_postgres(str(OLD / "psql"), "-q", "-h", f"{folder}/run", "-d", "postgres", text=_ROWS)
    run_as_postgres(str(OLD / "pg_ctl"), "stop", "-s", "-m", "immediate", "-D", str(data))
    yield folder / "postgresql/15"
    shutil.rmtree(folder)


@pytest.fixture
def node(node_lab: NodeLab, volume: Path) -> Node:
    """Return a Debian 13 with this folder."""
    name = f"hub-{len(node_lab.nodes)}"
    booted = node_lab.boot(name, f"10.64.32.{17 + len(node_lab.nodes)}")
    booted.run(f"mkdir -p {FOLDER}; useradd --system --user-group --home-dir /var/lib/postgresql postgres")
    subprocess.run(["cp", "-a", str(volume), f"{booted.root}{FOLDER}/15"], check=True)
    booted.run(f"chown -R postgres: {FOLDER}/15/main; sed -i 's|{volume}|{FOLDER}/15|g' {FOLDER}/15/programs/start")
    return booted


def test_a_newer_version_finds_every_row(node: Node, node_lab: NodeLab) -> None:
    """The programs beside the data recover and dump it. The old folder stays, and a second start repeats nothing."""
    changed = apply_roles(node_lab, node.name, Postgres(has_volume=False))
    ask = "runuser -u postgres -- psql -Atq -d mlflow -c"

    assert "Start PostgreSQL" in changed
    assert node.run(f"{ask} '{_COUNT}' -c 'show server_version_num'").split()[0] == "10000"
    assert node.run(f"{ask} 'show data_directory' -c 'show data_checksums'").split() == [f"{FOLDER}/17/main", "on"]
    assert node.run(f"cat {FOLDER}/15/main/PG_VERSION; ls {FOLDER}").split() == ["15", "15", "17"]
    assert node.run("tail -n 3 /srv/hub/dumps/postgresql-15.sql").startswith(
        "-- PostgreSQL database cluster dump complete"
    )
    node.run("systemctl restart postgresql@17-main")
    assert node.run(f"{ask} '{_COUNT}'").strip() == "10000"


def test_a_dump_that_is_cut_off_is_made_again(node: Node, node_lab: NodeLab) -> None:
    """By a power loss in its middle, and by an error: nothing has its final name, and a later start succeeds."""
    dump = "/srv/hub/dumps/postgresql-15.sql"
    node.run(_CUT)
    with ThreadPoolExecutor(1) as pool:
        applied = pool.submit(apply_roles, node_lab, node.name, Postgres(has_volume=False))
        until(lambda: node.run(f"wc -c <{dump}.new 2>/dev/null || true").strip() not in {"", "0"}, 600, "no dump", 1)
        node.run("echo 'exit 1' >/srv/cut")
        node.crash()
        with pytest.raises(CommandError):
            applied.result()

    with pytest.raises(CommandError):
        apply_roles(node_lab, node.name, Postgres(has_volume=False))
    left = node.run(f"ls {FOLDER}; ls /srv/hub/dumps").split()
    node.run("rm /srv/cut")
    apply_roles(node_lab, node.name, Postgres(has_volume=False))

    assert left == ["15", "postgresql-15.sql.new"]
    assert node.run(f"runuser -u postgres -- psql -Atq -d mlflow -c '{_COUNT}'").strip() == "10000"
