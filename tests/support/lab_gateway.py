"""A gateway of the product in a laboratory: the files that it would have, laid, and its units carried out."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from tests.support.lab_unit import LabUnit, read_unit
from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until
from vpn.sites.files import GUARD, HANDOVER, KERNEL, LAST_ROUTES, files_of
from vpn.sites.gateway import Charon, Gateway
from vpn.sites.rendered import Places, RenderedFile
from vpn.sites.units import service_name


class Amend(Protocol):
    """A change to a rendered file, for what no product would do: shortened lives, planted defects."""

    def __call__(self, file: RenderedFile) -> str:
        """Return the text to lay in the file's place."""


def as_rendered(file: RenderedFile) -> str:
    """Change nothing."""
    return file.text


@dataclass
class LabGateway:
    """A gateway, and the programs of its charons by name; `clock` is an environment that puts theirs off."""

    host: LabHost
    gateway: Gateway
    amend: Amend = as_rendered
    clock: Mapping[str, str] = field(default_factory=dict)
    daemons: dict[str, LabProgram] = field(default_factory=dict)
    watches: dict[str, LabProgram] = field(default_factory=dict)

    @property
    def places(self) -> Places:
        """Where its files lie."""
        root = PurePosixPath(self.host.folder)
        return Places(etc=root / "etc", run=root / "run", lib=root / "lib", log=root / "charon.log")

    @property
    def log(self) -> str:
        """What its charons wrote down."""
        file = self.host.folder / "charon.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def lay(self) -> None:
        """Lay every file anew; those of the machine as a whole go into the host's folder too."""
        (self.host.folder / "run").mkdir(exist_ok=True)
        for file in files_of(self.gateway, self.places):
            path = self._here(file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.amend(file))
            path.chmod(file.mode)

    def guard(self) -> None:
        """Put up the guard, its routes, and the kernel's settings: what a boot does before anything passes."""
        self.ground()
        self.host.run("nft", "-f", str(self._root(str(HANDOVER))))

    def ground(self) -> None:
        """Put up what the role brings, before a gateway has tunnels."""
        self.host.run("nft", "-f", str(self._root(str(GUARD))))
        self.host.run("ip", "-batch", str(self._root(str(LAST_ROUTES))))
        self.host.run("sysctl", "-q", "-p", str(self._root(str(KERNEL))))

    def start(self, *, loads: bool = True) -> None:
        """Start every charon as its unit does, and what looks after it; without `loads` it knows no connections."""
        for charon in self.gateway.charons:
            self._start(charon, loads)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End every charon, and what looks after their tunnels, which is bound to them."""
        for program in (*self.watches.values(), *self.daemons.values()):
            program.end(how)

    def load(self) -> None:
        """Have every charon read its connections and keys anew, as a reload of its unit does."""
        for charon in self.gateway.charons:
            unit = self._unit(f"{service_name(charon)}.service")
            for command in unit.commands("ExecReload", self.daemons[charon.name].pid):
                self.host.run(*command, env=unit.env)

    def dial(self) -> None:
        """Look once whether the tunnels stand, as the unit does by and by."""
        for charon in self.gateway.charons:
            unit, socket = self._unit(f"{service_name(charon)}-dial.service"), self.places.socket(charon.name)
            for name, *_, who in (line.split()[:6] for line in self._table(charon).splitlines()):
                self.host.tries(str(self.places.lib / "ipsec-look"), socket, name, who, env=unit.env)

    def swanctl(self, *words: str) -> str:
        """Give an order to every charon, and return what they told."""
        told = ""
        for charon in self.gateway.charons:
            unit = self._unit(f"{service_name(charon)}.service")
            told += self.host.run("swanctl", *words, "--uri", self.places.socket(charon.name), env=unit.env)
        return told

    @property
    def sas(self) -> int:
        """How many IKE_SAs stand."""
        return self.swanctl("--list-sas").count("ESTABLISHED")

    def _start(self, charon: Charon, loads: bool) -> None:  # noqa: FBT001  carried on from start
        unit = self._unit(f"{service_name(charon)}.service")
        socket = Path(self.places.socket(charon.name).removeprefix("unix://"))
        socket.unlink(missing_ok=True)
        (command,) = unit.commands("ExecStart")
        daemon = self.host.start(*command, log=f"{charon.name}.out", env={**unit.env, **self.clock})
        until(socket.exists, 15, f"charon {charon.name} does not listen")
        for post in unit.commands("ExecStartPost", daemon.pid):
            if loads or "--load-all" not in post:
                self.host.run(*post, env=unit.env)
        self.daemons[charon.name] = daemon
        self.watches[charon.name] = self._watch(charon)

    def _watch(self, charon: Charon) -> LabProgram:
        unit = self._unit(f"{service_name(charon)}-dial.service")
        (command,) = unit.commands("ExecStart")
        return self.host.start(*command, log=f"{charon.name}-dial.out", env=unit.env)

    def _table(self, charon: Charon) -> str:
        return Path(self.places.table(charon.name)).read_text()

    def _unit(self, name: str) -> LabUnit:
        return read_unit(self._root(f"/etc/systemd/system/{name}").read_text())

    def _here(self, file: RenderedFile) -> Path:
        return Path(file.path) if file.path.is_relative_to(self.host.folder) else self._root(str(file.path))

    def _root(self, path: str) -> Path:
        return self.host.folder / "root" / path.lstrip("/")
