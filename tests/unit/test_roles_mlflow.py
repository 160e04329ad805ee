"""The role `mlflow`: its lock, and how an environment is replaced."""

import re
import subprocess
from pathlib import Path

import pytest

from roles.base import file_text
from roles.mlflow.role import DIGEST, Environments, Mlflow
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.run import ROOT

UBUNTU = recorded("ubuntu-24.04")
LOCK = file_text("mlflow/mlflow.txt")
INSTALL, CHECK = "Install MLflow", "Check that MLflow has its planned environment"


def test_the_lock_has_a_hash_for_every_package() -> None:
    """The three distributions of MLflow have one version, and the packages of models and plots are left out."""
    packages = re.findall(
        r"^([a-z0-9-]+)==(\S+)(?: .*)?\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", LOCK, re.MULTILINE
    )
    excluded = {line for line in file_text("mlflow/excludes.txt").splitlines() if not line.startswith("#")}

    assert len(packages) == len(re.findall("^[a-z]", LOCK, re.MULTILINE))
    assert len({version for name, version, _ in packages if name.startswith("mlflow")}) == 1
    assert excluded.isdisjoint({name for name, _, _ in packages})


@pytest.mark.parametrize(
    ("state", "installs", "checks"),
    [
        (":", True, True),
        (f"older:{DIGEST}/complete", False, True),
        (f"{DIGEST}:{DIGEST}/complete", False, False),
    ],
    ids=["new", "not used yet", "used"],
)
def test_an_environment_is_made_once_and_used_by_the_service(state: str, *, installs: bool, checks: bool) -> None:
    """It is complete once its schema is known; an apply fails as long as the server has another environment."""
    played = Recorder(UBUNTU.but({Environments.name: (state,)})).play(Mlflow())

    assert (INSTALL in played.names, CHECK in played.names) == (installs, checks)
    if installs:
        *_, complete = played.step(INSTALL).commands
        assert complete.endswith(f"mv /opt/mlflow/{DIGEST}/schema /opt/mlflow/{DIGEST}/complete")


def test_the_settings_of_connections_agree() -> None:
    """The pools of both workers and twenty more connections are within the limit of PostgreSQL."""
    unit, program = file_text("mlflow/mlflow.service"), file_text("mlflow/records")
    size, overflow = (int(found) for found in re.findall(r"SQLALCHEMYSTORE_\w+=(\d+)", unit))
    (workers,) = re.findall(r"--workers (\d+)", program)
    (limit,) = re.findall(r"^max_connections = (\d+)$", file_text("postgres/postgresql.conf"), re.MULTILINE)

    # One request of metrics needs two connections, and a worker has forty threads.
    assert size + overflow >= 2 * 40 + 10
    assert int(workers) * (size + overflow) + 20 <= int(limit)
    assert "--no-access-log" in program


# The programs that `records` calls, on a database of one table in files.
_FAKES = {
    "runuser": 'shift 3; exec "$@"',
    "setpriv": 'shift 3; exec "$@"',
    "createuser": "touch role",
    "createdb": "touch database",
    "curl": "[ ! -e silent ] || exit 22",
    "pg_dump": "[ ! -e full ] || exit 1; cat schema",
    "psql": """case "$*" in
*pg_roles*) cat role 2>/dev/null; [ ! -e role ] || echo 1 ;;
*pg_database*) [ ! -e database ] || echo 1 ;;
*to_regclass*) [ ! -e schema ] || echo alembic_version ;;
*version_num*) cat schema ;;
*rename*) mv restored schema ;;
esac""",
    "dropdb": "exit 0",
    "pg_restore": "cat > restored",
}
_PYTHON = """#!/bin/sh
case "$*" in *"db upgrade"*) cp "$(dirname "$0")/../complete" schema ;; *) exec sleep 60 ;; esac
"""


class Machine:
    """A folder with the programs and files of a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in _FAKES.items():
            self.write(f"bin/{name}", f"#!/bin/sh\n{text}\n", 0o755)
        text = file_text("mlflow/records").replace("/opt/mlflow", str(folder / "opt"))
        text = text.replace("/srv/hub/dumps", str(folder / "dumps")).replace("/etc/bedplate", str(folder))
        self.write("records", text, 0o755)
        (folder / "dumps").mkdir()
        for name, schema in (("old", "1"), ("new", "2")):
            self.write(f"opt/{name}/complete", f"{schema}\n")
            self.write(f"opt/{name}/bin/python", _PYTHON, 0o755)

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def prepare(self, planned: str) -> tuple[int, str, str]:
        """Return the exit status of a start, the environment in use, and the schema."""
        self.write("mlflow", f"{planned}\n")
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin"}
        done = subprocess.run(
            ["./records", "prepare"], cwd=self.folder, env=environment, capture_output=True, timeout=60, check=False
        )
        link, schema = self.folder / "opt/current", self.folder / "schema"
        return done.returncode, str(link.readlink()) if link.is_symlink() else "", schema.read_text().strip()

    @property
    def dumps(self) -> list[str]:
        """The names of the dumps, without times."""
        return sorted(re.sub(r"\d{8}T\d{6}Z", "TIME", path.name) for path in (self.folder / "dumps").iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine whose records are in the older environment."""
    started = Machine(tmp_path)
    assert started.prepare("old") == (0, "old", "1")
    return started


def test_an_upgrade_keeps_the_dump_of_before(machine: Machine) -> None:
    """The next start finds nothing to do. Of former upgrades the newest two are kept, too."""
    for year in (2021, 2024, 2023, 2022):
        machine.write(f"dumps/mlflow-{year}0101T000000Z.dump", "")

    assert machine.prepare("new") == (0, "new", "2")
    assert machine.prepare("new") == (0, "new", "2")

    assert machine.dumps == ["mlflow-TIME.dump"] * 3
    names = {path.name[7:11] for path in (machine.folder / "dumps").iterdir()}
    assert {"2023", "2024"} <= names


def test_a_server_that_does_not_answer_is_replaced_by_the_former(machine: Machine) -> None:
    """Schema and environment are those of before, and the next start does not try again."""
    machine.write("opt/new/bin/python", _PYTHON.replace("exec sleep 60", "exit 1"), 0o755)
    machine.write("silent", "")

    assert machine.prepare("new") == (0, "old", "1")
    (machine.folder / "silent").unlink()
    assert machine.prepare("new") == (0, "old", "1")
    assert machine.dumps == ["failed-new.dump"]
    (machine.folder / "dumps/failed-new.dump").unlink()
    assert machine.prepare("new") == (0, "new", "2")


def test_an_interrupted_upgrade_goes_on_with_its_dump(machine: Machine) -> None:
    """The schema is new and the link is not: the dump of before is the one to go back to."""
    machine.write("schema", "2\n")
    machine.write("dumps/before-new.dump", "1\n")

    assert machine.prepare("new") == (0, "new", "2")
    assert (machine.folder / "dumps" / next((machine.folder / "dumps").iterdir())).read_text() == "1\n"


def test_without_a_dump_the_former_server_goes_on(machine: Machine) -> None:
    """A cut-off dump has no name that a restore uses."""
    machine.write("full", "")

    assert machine.prepare("new") == (0, "old", "1")
    assert "before-new.dump" not in machine.dumps


def test_no_server_starts_on_a_schema_that_is_not_its_own(machine: Machine) -> None:
    """A database from elsewhere: the environment moves it if it can; if that has failed, nothing starts."""
    machine.write("schema", "0\n")
    assert machine.prepare("old") == (0, "old", "1")

    machine.write("schema", "0\n")
    machine.write("dumps/failed-old.dump", "")
    assert machine.prepare("old")[0] == 1


def test_the_program_says_what_make_lock_does() -> None:
    """The Makefile resolves the lock from the group of pyproject.toml, without the excluded packages."""
    (line,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "mlflow.txt" in line]

    assert "--group pyproject.toml:records" in line
    assert "--excludes roles/mlflow/excludes.txt" in line
