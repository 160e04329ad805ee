"""The role `mlflow`: MLflow as the record of runs, in an environment with all packages locked, on a unix socket.

`install` makes the environment of the lock. At the next start of the service, the program `records` moves the database
to its schema; if that fails, the former environment and database go on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from pyinfra.context import host
from pyinfra.operations import server, systemd

from roles.base import (
    LIBRARY,
    Changes,
    DiskSpace,
    ManagedFile,
    Role,
    changed,
    command_file,
    file_text,
    put_files,
    unit_files,
)
from roles.system import PACKAGES, TextFact, install_packages, start_units, venv_commands

_LOCK = file_text("mlflow/mlflow.txt")
_FOLDER, SERVICE = "/opt/mlflow", "mlflow.service"
DIGEST = sha256(_LOCK.encode()).hexdigest()[:12]
_SCHEMA = "from mlflow.store.db.utils import _get_latest_schema_revision as latest; print(latest())"


class Environments(TextFact):
    """The environment in use, and the locked one if it is complete."""

    def command(self) -> str:
        """Read the link, and the file that the installation writes last."""
        return f"cd {_FOLDER} 2>/dev/null && echo $(readlink current):$(ls {DIGEST}/complete) || true"


@dataclass(frozen=True, slots=True)
class Mlflow(Role):
    """A hub with MLflow."""

    name: ClassVar[str] = "mlflow"
    space: ClassVar[DiskSpace] = DiskSpace(programs=700, state=80)

    def install(self) -> None:
        """Create the account, and make the environment of the lock beside the one in use."""
        install_packages("Install the tools of the records", (*PACKAGES, "curl"))
        server.group(name="Create the group of the record", group="mlflow", system=True)
        server.user(  # noqa: S604  # the login shell of the account
            name="Create the account of MLflow",
            user="mlflow",
            group="mlflow",
            system=True,
            create_home=False,
            shell="/usr/sbin/nologin",
        )
        put_files(ManagedFile("Write the lock of MLflow", f"{_FOLDER}.txt", _LOCK))
        if "complete" not in host.get_fact(Environments):
            target = f"{_FOLDER}/{DIGEST}"
            complete = f"{target}/bin/python -c '{_SCHEMA}' > {target}/schema && mv {target}/schema {target}/complete"
            server.shell(name="Install MLflow", commands=[*venv_commands(target, f"{_FOLDER}.txt"), complete])

    def files(self) -> Iterator[ManagedFile]:
        """Yield the planned environment, the program of the records, and its unit."""
        yield ManagedFile("Write the planned environment of MLflow", "/etc/bedplate/mlflow", f"{DIGEST}\n")
        yield command_file(f"{LIBRARY}/records", "mlflow/records")
        yield from unit_files("mlflow", SERVICE)

    def activate(self, changes: Changes) -> None:
        """Start MLflow, and restart it after a change; an environment that it has refused is an error of each apply."""
        # First: its first start takes a while, and then needs no second one.
        systemd.service(name="Restart MLflow", service=SERVICE, restarted=True, _if=changed(changes))
        start_units({"Start MLflow": SERVICE})
        if not host.get_fact(Environments).startswith(f"{DIGEST}:"):
            command = f"test $(readlink {_FOLDER}/current) = {DIGEST} || {{ systemctl status {SERVICE}; exit 1; }}"
            server.shell(name="Check that MLflow has its planned environment", commands=[command])
