"""A gateway of laptops in a laboratory: its daemons with the rights that the unit gives, and the keeper beside them."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from signal import SIGKILL
from typing import Any

from bedplate.plan.laptops import LaptopGateway, Transport
from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until
from vpn.laptops.server import Folders
from vpn.laptops.unit import RIGHTS

NOBODY, NOGROUP = 65534, 65534
_ROOT = Path(__file__).parents[2]
# As the unit starts it: nobody's account, a router's rights. The device is open to all on a machine that has udev.
_RAISED = ",".join(f"+{each.removeprefix('CAP_').lower()}" for each in RIGHTS)
_START = (
    'mount --bind "$1" /dev/net/tun && exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs '
    f"--inh-caps=-all,{_RAISED} --ambient-caps=-all,{_RAISED} --bounding-set=-all,{_RAISED} "
    # Whatever is to change its clock is for the daemon alone.
    'env $FOR_THE_DAEMON openvpn --suppress-timestamps --config "$0"'
)
# The system's Python in its isolated mode: nothing of the project but the keeper is in its reach.
_KEEPER = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("keeper", run_name="__main__", alter_sys=True)
"""


@dataclass
class GatewayHost:
    """A gateway: its daemons, and the keeper beside them."""

    host: LabHost
    gateway: LaptopGateway
    daemons: dict[Transport, LabProgram] = field(default_factory=dict)

    @property
    def folders(self) -> Folders:
        """Where its settings and its sockets lie."""
        return Folders(PurePosixPath(self.host.folder / "settings"), PurePosixPath(self.host.folder / "sockets"))

    def start(self, *transports: Transport, env: Mapping[str, str] | None = None) -> None:
        """Start daemons, of both transports where none is named, and wait until they serve; `env` is for them alone."""
        own = " ".join(f"{name}={value}" for name, value in (env or {}).items())
        for transport in transports or tuple(Transport):
            self._start(transport, own)

    def _start(self, transport: Transport, own: str) -> None:
        conf = f"{self.folders.settings}/{transport}.conf"
        log = f"{transport}.log"
        (self.host.folder / log).write_text("")
        if before := self.daemons.get(transport):
            before.end(SIGKILL)
        program = self.host.start(
            "sh", "-c", _START, conf, str(self.host.folder / "tun"), log=log, env={"FOR_THE_DAEMON": own}
        )
        self.daemons[transport] = program
        until(lambda: "Initialization Sequence Completed" in program.told, 20, f"{conf} does not serve")

    def keeper(self, *command: str, told: str | None = None) -> str:
        """Ask the keeper, as an operator's machine does over SSH."""
        return self.host.run(*self._keeper, *command, told=told)

    @property
    def shell(self) -> str:
        """The line of a shell that asks the keeper what follows it."""
        return shlex.join(("ip", "netns", "exec", self.host.namespace, *self._keeper))

    @property
    def status(self) -> Any:  # noqa: ANN401  JSON
        """How it is, as its keeper prints it."""
        return json.loads(self.keeper("status"))

    @property
    def _keeper(self) -> tuple[str, ...]:
        places = ("--settings", str(self.folders.settings), "--sockets", str(self.folders.sockets), "--owner", "nobody")
        memory = ("--memory", str(self.host.folder / "memory"))
        return "/usr/bin/python3", "-I", "-c", _KEEPER, str(_ROOT / "vpn"), *places, *memory

    def log(self, transport: Transport = Transport.UDP) -> str:
        """Return what a daemon said since it was started."""
        return self.daemons[transport].told
