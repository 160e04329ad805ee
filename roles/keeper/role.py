"""The role `keeper`: `bedplate-vpn` on a gateway, and the timer by which it tells Prometheus how things are."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyinfra.operations import files, systemd
from pyinfra.operations.util import any_changed

import vpn.keeper
from roles.base import Changes, Role
from roles.files import Shipped, ship, text_of
from roles.system import install

FOLDER = "/usr/local/lib/bedplate"
PROGRAM = "/usr/local/sbin/bedplate-vpn"
# Where Debian's prometheus-node-exporter reads the texts of others.
METRICS = "/var/lib/prometheus/node-exporter"
TIMER = "bedplate-vpn-metrics.timer"
_UNITS = "/etc/systemd/system"


@dataclass(frozen=True, slots=True)
class Keeper(Role):
    """The keeper of a gateway, whatever daemons it has."""

    name: ClassVar[str] = "keeper"

    def install(self) -> None:
        """Install what it runs by."""
        install("Keeper", ("openssl", "python3"))

    def configure(self) -> Changes:
        """Write the keeper as it lies in the project, and its units."""
        files.directory(name="Folder of metrics", path=METRICS, user="root", group="root", mode="755")
        return ship(*keeper_files())

    def activate(self, changes: Changes) -> None:
        """Let the timer run."""
        systemd.daemon_reload(name="Units of the keeper are read", _if=any_changed(*changes))
        systemd.service(name="Metrics of the gateway", service=TIMER, running=True, enabled=True)


def keeper_files() -> Iterator[Shipped]:
    """Yield the keeper and its units."""
    yield Shipped("Keeper", PROGRAM, text_of("keeper/bedplate-vpn"), "755")
    for file in sorted(Path(vpn.keeper.__file__).parent.glob("*.py")):
        yield Shipped(f"Keeper: {file.stem}", f"{FOLDER}/keeper/{file.name}", file.read_text(encoding="utf-8"))
    for unit in (TIMER, TIMER.replace(".timer", ".service")):
        yield Shipped(f"Unit {unit}", f"{_UNITS}/{unit}", text_of(f"keeper/{unit}"))
