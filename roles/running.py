"""Units of systemd that run, and start at boot: one question about all of a role's.

pyinfra's own `systemd.service` asks two a unit, and has systemd read every unit anew after each that it enables.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.context import host

_ACTIVE, _ENABLED = "active", "enabled"
_LINKS = "/etc/systemd/system"


class States(FactBase[Mapping[str, frozenset[str]]]):
    """What each unit is, of active and enabled, by the name that it was asked by."""

    default = dict

    def command(self, units: Sequence[str]) -> StringCommand:
        """Ask systemd what is active, and the disk what is enabled, of which systemd may remember what it was."""
        self._units = tuple(units)
        quoted = [QuoteString(unit) for unit in units]
        links = [StringCommand("*.wants/", unit, _separator="") for unit in quoted]
        return StringCommand("systemctl is-active", *quoted, f"; cd {_LINKS} && ls -d", *links, "2>/dev/null || true")

    def process(self, output: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Read a word for each unit, in their order, then the links that start units at boot."""
        lines = list(output)
        count = len(self._units)
        links = {line.rpartition("/")[2] for line in lines[count:]}
        words = zip(self._units, lines[:count], strict=True)
        return {unit: frozenset((word, _ENABLED) if unit in links else (word,)) for unit, word in words}


def keep_running(wanted: Mapping[str, str], *, ends_apply: bool = True) -> list[OperationMeta]:
    """Declare that units run, now and after a boot; by the name of the operation.

    One that does not start ends the apply, or is told at its end where nothing else waits for it.
    """
    among = tuple(wanted.values())
    return [_run(name=name, unit=unit, among=among, _ignore_errors=not ends_apply) for name, unit in wanted.items()]


@operation()
def _run(unit: str, among: Sequence[str]) -> Generator[PyinfraCommand, None, None]:
    states = host.get_fact(States, units=among).get(unit, frozenset())
    if _ENABLED not in states:
        # What is started now is started by hand; who wants it at boot is read at boot.
        yield StringCommand("systemctl --no-reload --quiet enable", QuoteString(unit))
    if _ACTIVE not in states:
        yield StringCommand("systemctl start", QuoteString(unit))
    if {_ENABLED, _ACTIVE} <= states:
        host.noop(f"{unit} runs, and starts at boot")
