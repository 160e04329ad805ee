"""Settings of the running kernel, those alone that the node may set: a container leaves most to its host."""

from collections.abc import Iterable, Mapping, Sequence

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server


class Settable(FactBase[Mapping[str, str]]):
    """The values of those settings that may be set here."""

    default = dict

    def command(self, keys: Sequence[str]) -> StringCommand:
        """Read each setting that can be written, all in one program."""
        quoted = [QuoteString(f"/proc/sys/{key.replace('.', '/')}") for key in keys]
        own = 'do [ ! -w "$p" ] || set -- "$@" "$p"; done'
        told = 'FNR == 1 { n = substr(FILENAME, 11); gsub("/", ".", n); print n "=" $0 }'
        return StringCommand("set --; for p in", *quoted, f"; {own}; [ $# = 0 ] || awk '{told}' \"$@\"")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Part names from values, which the kernel sets apart by tabs."""
        pairs = (line.partition("=") for line in output)
        return {key: " ".join(value.split()) for key, _, value in pairs}


def hold(name: str, file: str, wanted: Mapping[str, str]) -> None:
    """Declare that the running kernel has these values, which a file of sysctl.d gives it at boot."""
    found = host.get_fact(Settable, keys=tuple(wanted))
    if any(found.get(key, value) != value for key, value in wanted.items()):
        server.shell(name=name, commands=[f"/usr/lib/systemd/systemd-sysctl {file}"])
