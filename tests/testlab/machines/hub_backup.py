"""The program of backups on this machine: a real PostgreSQL, rclone to a folder or to S3, and stand-ins for systemd."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from roles.base import file_text
from tests.testlab.run import lack, need_program, need_root

NODE = "hub.us-west-2"
_RUN = "insert into runs values (md5('{0}'), 'active', extract(epoch from now()) * 1000)"
_FAKES = {
    # As the owner of the cluster, whose socket is in the folder. `cut` takes the place of pg_dump.
    "runuser": '[ "$4" != pg_dump ] || [ ! -e {folder}/cut ] || exec sh {folder}/cut; '
    'shift 3; exec setpriv --reuid=postgres --regid=postgres --clear-groups env PGHOST={socket} "$@"',
    "systemctl": 'echo "$*" >> {folder}/systemctl; [ "$1" != is-active ] || echo active',
    "curl": "[ ! -e {folder}/silent ]",
    "mountpoint": "[ ! -e {folder}/unmounted ]",
    "bp-token": "echo bytes.ada 5",
    "bedplate-hub": 'echo "$2" >> {folder}/hub/tokens/$1ed',
    "dpkg-query": "echo 1.24.0",
}


@dataclass
class Backups:
    """A hub in a folder; `target` is where its backups go."""

    folder: Path
    socket: Path
    target: str
    environment: Mapping[str, str]
    log: list[str] = field(default_factory=list)

    @property
    def hub(self) -> Path:
        """Its volume."""
        return self.folder / "hub"

    def start(self) -> None:
        """Write the programs, and a new volume with keys."""
        for name, text in _FAKES.items():
            self._program(f"bin/{name}", "#!/bin/sh\n" + text.format(folder=self.folder, socket=self.socket))
        for name, path in (("records", "mlflow/records"), ("hub-backup", "hub/hub-backup")):
            text = file_text(path).replace("/usr/local/lib/bedplate/", f"{self.folder}/")
            for place in ("/srv/hub", "/etc/bedplate", "/etc/ssh", "/var/log", "/opt/mlflow"):
                text = text.replace(place, str(self.folder / Path(place).name))
            # Accounts of the machine.
            text = text.replace("--owner=bedplate-hub --group=bedplate-hub", "").replace("www-data:mlflow", "0:0")
            self._program(name, text)
        (self.folder / "mlflow/current/lib/python3/site-packages/mlflow-3.5.1.dist-info").mkdir(parents=True)
        log = self.folder / "log/nginx/access.log"
        log.parent.mkdir(parents=True)
        log.write_text("")
        for name in ("bedplate", "ssh"):
            (self.folder / name).mkdir()
        settings = f"NODE={NODE}\nTARGET={self.target!r}\nWITH=(keys tokens ssh)\n"
        (self.folder / "bedplate/hub-backup").write_text(settings)
        self.new_volume("first")

    def _program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def new_volume(self, name: str) -> None:
        """Make the volume and the database that a new machine makes, with keys of this name."""
        shutil.rmtree(self.hub, ignore_errors=True)
        for part in ("keys", "tokens", "dumps", "artifacts"):
            (self.hub / part).mkdir(parents=True)
        for key in ("tokens", "tokens.former", "tls.crt", "tls.key"):
            (self.hub / "keys" / key).write_text(f"{name} {key}\n")
        for folder in (self.hub / "ssh", self.folder / "ssh"):
            folder.mkdir(exist_ok=True)
            (folder / "ssh_host_ed25519_key").write_text(f"{name} host key\n")
        for database in ("mlflow", "replaced", "restored"):
            self.sql(f"drop database if exists {database} with (force)", "postgres")
        self.sql("create database mlflow owner mlflow", "postgres")
        columns = "run_uuid text, lifecycle_stage text, start_time bigint, end_time bigint, status text"
        self.sql(f"create table runs ({columns})")
        for table in ("tags", "params", "metrics", "latest_metrics"):
            self.sql(f"create table {table} (run_uuid text, key text, value text)")

    def sql(self, statement: str, database: str = "mlflow") -> str:
        """Run a statement."""
        command = [str(self.folder / "bin/runuser"), "-u", "postgres", "--", "psql", "-qAtc", statement, "-d", database]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def record(self, name: str, text: str = "pack") -> None:
        """Record a run, with a file."""
        self.sql(_RUN.format(name))
        self.write(f"artifacts/packs/ada/{name}.pack", text)

    def write(self, name: str, text: str) -> None:
        """Write a file of the volume."""
        path = self.hub / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def runs(self) -> int:
        """The number of runs."""
        return int(self.sql("select count(*) from runs"))

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program."""
        command = [str(self.folder / "hub-backup"), *words]
        return subprocess.run(command, check=False, env=self.environment, capture_output=True, text=True, timeout=120)

    def facts(self, *words: str) -> list[str]:
        """Return the lines of a command that must succeed."""
        done = self.call(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def saved(self) -> str:
        """Save, and return the name of the newest backup."""
        self.facts("save")
        return max(path.stem for path in (self.hub / "dumps/nightly").glob("*.sha256"))


@contextmanager
def database(folder: Path) -> Iterator[Path]:
    """Run a scratch PostgreSQL, and yield the folder of its socket."""
    need_root()
    need_program("rclone")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        lack("needs PostgreSQL")
    owner = pwd.getpwnam("postgres")
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    run = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data, options = folder / "data", f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"

    def call(*words: str) -> None:
        subprocess.run([*run, programs[-1] / words[0], *words[1:]], check=True, capture_output=True, cwd=folder)

    call("initdb", f"--pgdata={data}", "--auth=trust", "--no-sync")
    call("pg_ctl", "start", "-w", f"--pgdata={data}", f"--log={folder}/log", f"--options={options}")
    try:
        call("createuser", f"--host={folder}", "mlflow")
        yield folder
    finally:
        call("pg_ctl", "stop", "-m", "immediate", f"--pgdata={data}")
