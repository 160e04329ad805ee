"""Units of systemd that run, and start at boot: one question about all of a role's.

pyinfra's own `systemd.service` asks two a unit, and has systemd read every unit anew after each that it enables.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.context import host

_ACTIVE, _ENABLED = "ActiveState=active", "UnitFileState=enabled"


class States(FactBase[Mapping[str, frozenset[str]]]):
    """What systemd says of each unit, by the name that it was asked by."""

    default = dict

    def command(self, units: Sequence[str]) -> StringCommand:
        """Ask about all; one that there is not is inactive."""
        self._units = tuple(units)
        quoted = (QuoteString(unit) for unit in units)
        return StringCommand("systemctl show --property=ActiveState --property=UnitFileState", *quoted)

    def process(self, output: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Tell the units apart by their order and the empty lines between: an alias is told under another name."""
        blocks = "\n".join(output).split("\n\n")
        return {unit: frozenset(block.split()) for unit, block in zip(self._units, blocks, strict=True)}


def keep_running(wanted: Mapping[str, str]) -> list[OperationMeta]:
    """Declare that units run, now and after a boot; by the name of the operation."""
    among = tuple(wanted.values())
    return [_run(name=name, unit=unit, among=among) for name, unit in wanted.items()]


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
