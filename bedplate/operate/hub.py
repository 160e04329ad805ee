"""The hub over SSH: its status, its journal, a restore of its backups, a new key, and the end of a person's tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.kubernetes.members import Connection
from bedplate.operate import Operator, Result, plan_of
from bedplate.operate.login import targets_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.hub import HubPlan
from bedplate.plan.nodes import permanent_nodes

_PROGRAM = "/usr/local/lib/bedplate/hub-backup"
_UNITS = ("nginx", "bedplate-hub*", "mlflow", "postgresql@*")


def hub_of(plan: FleetPlan) -> HubPlan:
    """Return the hub of a plan. Raises InputError for a fleet without one."""
    if plan.hub is None:
        raise InputError("the fleet has no hub", fix="add the key `hub`, with a region")
    return plan.hub


@contextmanager
def _connected(operator: Operator, plan: FleetPlan) -> Iterator[Connection]:
    name = hub_of(plan).node
    with targets_by_name(operator, plan, [node for node in permanent_nodes(plan) if node.name == name]) as targets:
        yield Connection(targets[name])


def _facts(hub: Connection, command: str) -> list[tuple[str, str]]:
    """Return the names and values of the lines that a command of the hub prints."""
    lines = hub.shell(f"{_PROGRAM} {command}", seconds=120).splitlines()
    return [(name, value) for name, _, value in (line.partition(" ") for line in lines)]


def status(operator: Operator) -> Result:
    """Return what the hub reports; the exit status is 3 if something is wrong."""
    with _connected(operator, plan_of(operator)) as hub:
        facts = _facts(hub, "status")
    faults = [value for name, value in facts if name == "fault"]
    document = {**{name: value for name, value in facts if name != "fault"}, "faults": faults}
    lines = [f"{name}: {value}" for name, value in sorted(facts, key=lambda fact: fact[0] == "fault")]
    return Result(lines, document, ViolationError.exit_code if faults else 0)


def journal_command(unit: str | None, *, follows: bool) -> tuple[str, ...]:
    """Return the command that shows the journal of a unit, or of all units of the hub."""
    options = [*(f"--unit={name}" for name in ([unit] if unit else _UNITS)), *(("--follow",) if follows else ())]
    return ("sudo", "-n", "journalctl", "--no-pager", "--output=short-iso", "--lines=200", *options)


def restore(operator: Operator, at: str | None) -> Result:
    """Restore the newest backup up to a time, after a question. Raises InputError if there is none."""
    with _connected(operator, plan_of(operator)) as hub:
        facts = _facts(hub, "list")
        backups = sorted(value for name, value in facts if name == "backup")
        chosen = _chosen(backups, at, hub.name)
        operator.show(f"backup {name}{' (this one)' if name == chosen else ''}" for name in backups)
        runs, newest = (dict(facts).get(name, "unknown") for name in ("runs", "newest"))
        operator.show([f"runs on the hub now: {runs}, the newest of {newest}"])
        if runs != "0" and newest > chosen:
            operator.show([f"what was recorded after {chosen} is lost"])
        operator.confirm(f"replace the records of {hub.name} by the backup {chosen}?")
        # A unit goes on if the connection is lost, and there is one at a time.
        unit = "systemd-run --quiet --wait --pipe --collect --unit=bedplate-hub-restore"
        hub.shell(f"{unit} flock /run/bedplate-hub-backup.lock {_PROGRAM} restore {chosen}", seconds=86_400)
    return Result([f"{hub.name} serves the records of {chosen}"], {"restored": chosen, "backups": backups})


def _chosen(backups: Sequence[str], at: str | None, hub: str) -> str:
    """Return the last backup up to a time."""
    try:
        times = {datetime.fromisoformat(name): name for name in backups}
    except ValueError:
        raise PartialError(f"invalid answer from {hub}", fix=f"run `bedplate node apply {hub}`") from None
    try:
        until = datetime.fromisoformat(at) if at else max(times, default=datetime.now(UTC))
    except ValueError:
        raise InputError(f"no time: {at}", fix="write the name of a backup, or 2026-11-27T02:30") from None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    if found := [time for time in times if time <= until]:
        return times[max(found)]
    fix = f"the oldest is {backups[0]}" if backups else "`bedplate hub logs bedplate-hub-backup` shows why"
    raise InputError(f"{hub} has no backup{f' up to {at}' if at else ''}", fix=fix)


def rotate(operator: Operator, *, now: bool) -> Result:
    """Make a new key for tokens, after a question if it ends those of runs."""
    with _connected(operator, plan_of(operator)) as hub:
        if now:
            operator.confirm("end the tokens of all running runs, so that their records end?")
        hub.shell(f"{_PROGRAM} rotate{' now' if now else ''}", seconds=60)
    former = "no longer valid" if now else "valid until the next rotation"
    return Result([f"{hub.name} has a new key; tokens of runs by the former key are {former}"])


def refuse_tokens(operator: Operator, plan: FleetPlan, uid: int) -> None:
    """Refuse the hub's tokens of a person from now on. Raises PartialError if the hub is not reached."""
    with _connected(operator, plan) as hub:
        try:
            hub.shell(f"bedplate-hub remove {uid}", seconds=60)
        except PartialError as error:
            raise PartialError(f"the tokens of the hub: {error.what}", fix=error.fix) from None
    operator.show([f"{hub.name} refuses the person's tokens"])
