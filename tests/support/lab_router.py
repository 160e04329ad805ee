"""FRR in a laboratory: zebra and bgpd of a host, told by vtysh what a text says."""

import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until

_DAEMONS = Path("/usr/lib/frr")


@dataclass
class LabRouter:
    """A host that speaks BGP."""

    host: LabHost
    programs: tuple[LabProgram, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its daemons listen for vtysh."""
        return self.host.folder / "frr"

    def start(self, text: str) -> None:
        """Start both daemons and give them a text."""
        self.folder.mkdir(exist_ok=True)
        # FRR gives up root, and then has to find its own sockets.
        self.host.folder.parent.chmod(0o711)
        shutil.chown(self.folder, "frr", "frr")
        file = self.folder / "frr.conf"
        file.write_text(text)
        self.programs = tuple(self._daemon(name) for name in ("zebra", "bgpd"))
        self.ask("-f", str(file))

    def ask(self, *words: str) -> str:
        """Have vtysh do something, and return what it printed."""
        return self.host.run("vtysh", "--vty_socket", str(self.folder), *words)

    def stop(self) -> None:
        """End both daemons."""
        for program in reversed(self.programs):
            program.end(signal.SIGTERM)

    def _daemon(self, name: str) -> LabProgram:
        own = self.folder
        program = self.host.start(
            str(_DAEMONS / name),
            *("--vty_socket", str(own), "-z", str(own / "zserv.api"), "-i", str(own / f"{name}.pid")),
            *("-f", "/dev/null", "-u", "frr", "-g", "frr", "-P", "0"),
            log=f"{name}.out",
        )
        until((own / f"{name}.vty").exists, 15, f"{name} does not listen; {program.told}")
        return program
