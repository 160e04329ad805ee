"""A gateway of the product in a laboratory: the files that it would have, laid, and its units carried out."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from tests.support.lab_unit import LabUnit, read_unit
from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until
from tests.support.userspace import FORGETFUL, IKE, handover, name_device, ports_of, settings_over
from vpn.sites.files import GUARD, KERNEL, LAST_ROUTES, files_of
from vpn.sites.gateway import Gateway
from vpn.sites.rendered import Places, RenderedFile
from vpn.sites.units import DIAL, SERVICE


class Amend(Protocol):
    """A change to a rendered file, for what no product would do: shortened lives, planted defects."""

    def __call__(self, file: RenderedFile) -> str:
        """Return the text to lay in the file's place."""


def as_rendered(file: RenderedFile) -> str:
    """Change nothing."""
    return file.text


@dataclass(frozen=True)
class LabCharon:
    """One charon: the tunnels that it serves, the folder of its files, and its ports."""

    name: str
    gateway: Gateway
    folder: Path
    log: Path
    ports: tuple[int, int] = IKE

    @property
    def places(self) -> Places:
        """Where its files are."""
        root = PurePosixPath(self.folder)
        return Places(etc=root / "etc", run=root / "run", lib=root / "lib", log=PurePosixPath(self.log))

    @property
    def userspace(self) -> Path:
        """The settings that load kernel-libipsec."""
        return self.folder / "userspace.conf"

    def unit(self, name: str) -> LabUnit:
        """Return a unit."""
        return read_unit((self.folder / f"root/etc/systemd/system/{name}.service").read_text())


@dataclass
class LabGateway:
    """A gateway, and the programs of its charons by name; `clock` is an environment that sets their clocks.

    `in_kernel`: the kernel encrypts, and one charon serves all tunnels.
    """

    host: LabHost
    gateway: Gateway
    amend: Amend = as_rendered
    clock: Mapping[str, str] = field(default_factory=dict)
    in_kernel: bool = False
    daemons: dict[str, LabProgram] = field(default_factory=dict)
    watches: dict[str, LabProgram] = field(default_factory=dict)

    @property
    def charons(self) -> tuple[LabCharon, ...]:
        """Its charons: one, or in user space one for each of several tunnels."""
        whole = LabCharon("tunnels", self.gateway, self.host.folder, self._log)
        if self.in_kernel or len(self.gateway.tunnels) == 1:
            return (whole,)
        return tuple(
            LabCharon(
                tunnel.name,
                replace(self.gateway, tunnels=(tunnel,)),
                self.host.folder / tunnel.name,
                self._log,
                ports_of(number),
            )
            for number, tunnel in enumerate(self.gateway.tunnels)
        )

    @property
    def places(self) -> Places:
        """Where the files of a gateway with one charon are."""
        return LabCharon("tunnels", self.gateway, self.host.folder, self._log).places

    @property
    def log(self) -> str:
        """What its charons wrote down."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def lay(self) -> None:
        """Write every file again; those of the machine as a whole go into the host's folder too."""
        self._lay(self.gateway, self.places, self.host.folder)
        for charon in self.charons:
            self._lay(charon.gateway, charon.places, charon.folder)
            if not self.in_kernel:
                product = Path(charon.places.folder) / "strongswan.conf"
                charon.userspace.write_text(settings_over(product, product.read_text(), charon.ports))

    def guard(self) -> None:
        """Put up the guard, its routes, and the kernel's settings: what a boot does before anything passes."""
        self.ground()
        if len(self.charons) > 1:
            peers = {charon.gateway.tunnels[0].far.outside: charon.ports for charon in self.charons}
            self.host.load_rules(handover(peers))

    def ground(self) -> None:
        """Put up what the role brings, before a gateway has tunnels."""
        self.host.run("nft", "-f", str(self._root(str(GUARD))))
        self.host.run("ip", "-batch", str(self._root(str(LAST_ROUTES))))
        self.host.run("sysctl", "-q", "-p", str(self._root(str(KERNEL))))
        if len(self.charons) > 1:
            self.host.load_rules(FORGETFUL)

    def start(self, *, loads: bool = True) -> None:
        """Start every charon as its unit does, and what looks after it; without `loads` it knows no connections."""
        for charon in self.charons:
            self._start(charon, loads)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End every charon, and what looks after their tunnels, which is bound to them."""
        for program in (*self.watches.values(), *self.daemons.values()):
            program.end(how)

    def load(self) -> None:
        """Have every charon read its connections and keys again, as a reload of its unit does."""
        for charon in self.charons:
            unit = charon.unit(SERVICE)
            for command in unit.commands("ExecReload"):
                self.host.run(*command, env=unit.env)

    def dial(self) -> None:
        """Look once whether the tunnels are up, as the unit does at intervals."""
        for charon in self.charons:
            env, places = charon.unit(DIAL).env, charon.places
            for name, *_, who in (line.split()[:6] for line in Path(places.table).read_text().splitlines()):
                self.host.tries(str(places.lib / "ipsec-look"), places.socket, name, who, env=env)

    def swanctl(self, *words: str) -> str:
        """Give an order to every charon, and return what they answered."""
        return "".join(
            self.host.run("swanctl", *words, "--uri", charon.places.socket, env=charon.unit(SERVICE).env)
            for charon in self.charons
        )

    @property
    def sas(self) -> int:
        """How many IKE_SAs are established."""
        return self.swanctl("--list-sas").count("ESTABLISHED")

    @property
    def _log(self) -> Path:
        return self.host.folder / "charon.log"

    def _start(self, charon: LabCharon, loads: bool) -> None:  # noqa: FBT001  carried on from start
        unit, socket = charon.unit(SERVICE), Path(charon.places.socket.removeprefix("unix://"))
        socket.unlink(missing_ok=True)
        (command,) = unit.commands("ExecStart")
        own = {} if self.in_kernel else {"STRONGSWAN_CONF": str(charon.userspace)}
        daemon = self.host.start(*command, log=f"{charon.name}.out", env={**unit.env, **self.clock, **own})
        until(socket.exists, 15, f"charon {charon.name} does not listen")
        if not self.in_kernel:
            name_device(self.host, daemon, charon.gateway.tunnels[0].device)
        for post in unit.commands("ExecStartPost"):
            if loads or "--load-all" not in post:
                self.host.run(*post, env=unit.env)
        self.daemons[charon.name] = daemon
        self.watches[charon.name] = self._watch(charon)

    def _watch(self, charon: LabCharon) -> LabProgram:
        unit = charon.unit(DIAL)
        (command,) = unit.commands("ExecStart")
        return self.host.start(*command, log=f"{charon.name}-dial.out", env=unit.env)

    def _lay(self, gateway: Gateway, places: Places, folder: Path) -> None:
        (folder / "run").mkdir(parents=True, exist_ok=True)
        for file in files_of(gateway, places):
            is_own = file.path.is_relative_to(folder)
            path = Path(file.path) if is_own else folder / "root" / str(file.path).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.amend(file))
            path.chmod(file.mode)

    def _root(self, path: str) -> Path:
        return self.host.folder / "root" / path.lstrip("/")
