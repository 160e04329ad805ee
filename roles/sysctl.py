"""Settings of the running kernel, those alone that the node may set: a container leaves most to its host.

A key may have `*` where an interface's name stands, as in files of sysctl.d.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server


class Settable(FactBase[Mapping[str, str]]):
    """The values of those settings that may be set here."""

    default = dict

    def command(self, keys: Sequence[str]) -> StringCommand:
        """Read each setting that can be written, all in one program."""
        paths = (f"/proc/sys/{key.replace('.', '/')}" for key in keys)
        quoted = [path if "*" in path else QuoteString(path) for path in paths]
        own = 'do [ ! -w "$p" ] || set -- "$@" "$p"; done'
        told = 'FNR == 1 { n = substr(FILENAME, 11); gsub("/", ".", n); print n "=" $0 }'
        return StringCommand("set --; for p in", *quoted, f"; {own}; [ $# = 0 ] || awk '{told}' \"$@\"")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Part names from values, which the kernel sets apart by tabs."""
        pairs = (line.partition("=") for line in output)
        return {key: " ".join(value.split()) for key, _, value in pairs}


def otherwise(found: Mapping[str, str], wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings whose value is not the wanted one; a key by its name goes before one by `*`."""
    return {key: value for key, value in found.items() if _wanted(key, wanted) not in (None, value)}


def hold(name: str, file: str, wanted: Mapping[str, str]) -> None:
    """Declare that the running kernel has these values, which a file of sysctl.d gives it at boot."""
    if otherwise(host.get_fact(Settable, keys=tuple(wanted)), wanted):
        server.shell(name=name, commands=[f"/usr/lib/systemd/systemd-sysctl {file}"])


def _wanted(key: str, wanted: Mapping[str, str]) -> str | None:
    return wanted.get(key) or next((value for each, value in wanted.items() if fnmatchcase(key, each)), None)
