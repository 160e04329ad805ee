"""Drop-ins of systemd's for units that bedplate ships: what changes such a unit beside its file, and is taken away.

Never touches those of other units; a unit that people may add to is not to be named here.
"""

from collections.abc import Iterable, Sequence
from shlex import quote

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server

# Source: systemd.unit(5), the load path; what packages put into /usr/lib is theirs, and none knows our units.
_FOLDERS = ("/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system")
_READ_ANEW = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"


class DropIns(FactBase[tuple[str, ...]]):
    """The folders of drop-ins that there are for these units."""

    default = tuple

    def command(self, units: Sequence[str]) -> StringCommand:
        """Look in each folder that systemd reads; what is missing says nothing."""
        paths = (f"{folder}/{unit}.d" for unit in units for folder in _FOLDERS)
        return StringCommand("ls -d", *(QuoteString(path) for path in paths), "2>/dev/null || :")

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Read a path a line."""
        return tuple(output)


def removed(name: str, units: Sequence[str]) -> None:
    """Declare that these units do what their own files say."""
    if units and (found := host.get_fact(DropIns, units=tuple(units))):
        gone = " ".join(("rm -rf", *map(quote, found)))
        server.shell(name=name, commands=[gone, _READ_ANEW])
