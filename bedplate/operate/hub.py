"""The hub over SSH: its status, its journal, a restore of its backups, a new key, and the end of a person's tokens."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from bedplate.errors import InputError, PartialError, ViolationError
from bedplate.kubernetes.members import Connection
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.operate.login import targets_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.hub import HUB_DUMPS, HUB_FILES, HubPlan
from bedplate.plan.nodes import permanent_nodes

_PROGRAM = "/usr/local/lib/bedplate/hub-backup"
# A unit goes on if the connection is lost, and there is one at a time.
_UNIT = "systemd-run --quiet --wait --pipe --collect --unit=bedplate-hub-restore"
_ALONE = f"{_UNIT} flock /run/bedplate-hub-backup.lock {_PROGRAM}"
_RUN, _ID = 32, re.compile("[0-9a-f]{32}(?:[0-9a-f]{8})?")
_UNITS = ("nginx", "bedplate-hub*", "mlflow", "postgresql@*", "prometheus", "prometheus-alertmanager", "grafana-server")


def hub_of(plan: FleetPlan) -> HubPlan:
    """Return the hub of a plan. Raises InputError for a fleet without one."""
    if plan.hub is None:
        raise InputError("the fleet has no hub", fix="add the key `hub`, with a region")
    return plan.hub


@contextmanager
def connected_hub(operator: Operator, plan: FleetPlan) -> Iterator[Connection]:
    """Yield the hub of a plan over SSH. Raises InputError for a fleet without one."""
    name = hub_of(plan).node
    with targets_by_name(operator, plan, [node for node in permanent_nodes(plan) if node.name == name]) as targets:
        yield Connection(targets[name])


def _facts(hub: Connection, command: str) -> list[tuple[str, str]]:
    """Return the names and values of the lines that a command of the hub prints."""
    lines = hub.shell(f"{_PROGRAM} {command}", seconds=120).splitlines()
    return [(name, value) for name, _, value in (line.partition(" ") for line in lines)]


def status(operator: Operator) -> Result:
    """Return what the hub reports; the exit status is 3 if something is wrong."""
    with connected_hub(operator, plan_of(operator)) as hub:
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
    with connected_hub(operator, plan_of(operator)) as hub:
        facts = _facts(hub, "list")
        backups = sorted(value for name, value in facts if name == "backup")
        chosen = _chosen(backups, at, hub.name)
        operator.show(f"backup {name}{' (this one)' if name == chosen else ''}" for name in backups)
        runs, newest = (dict(facts).get(name, "unknown") for name in ("runs", "newest"))
        operator.show([f"runs on the hub now: {runs}, the newest of {newest}"])
        if runs != "0" and newest > chosen:
            operator.show([f"what was recorded after {chosen} is lost"])
        operator.confirm(f"replace the records of {hub.name} by the backup {chosen}?")
        hub.shell(f"{_ALONE} restore {chosen}", seconds=86_400)
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


def purge(operator: Operator, ident: str) -> Result:
    """Delete the packs of a tree, or a run, and their backups, after a question. Raises InputError for none."""
    from bedplate.account.bundle import object_versions  # slow: it imports the client of AWS

    plan = plan_of(operator)
    own, is_run = hub_of(plan), len(ident) == _RUN
    fix = "write the 40 digits of a tree, or the 32 of a run: `bp show` has both"
    if not _ID.fullmatch(ident):
        raise InputError(f"no tree or run: {ident}", fix=fix)
    client = open_account(plan) if own.bucket else None

    def copies() -> list[Mapping[str, str]]:
        """Return all versions in the bucket; each dump has every run."""
        if client is None or own.bucket is None:
            return []
        folders = (f"{HUB_FILES}/{own.node}/", *([f"{HUB_DUMPS}/{own.node}/"] if is_run else []))
        listed = (object_versions(client, own.bucket.region, own.bucket.name, folder) for folder in folders)
        return [item for part in listed for item in part if ident in item["Key"] or item["Key"].startswith(HUB_DUMPS)]

    with connected_hub(operator, plan) as hub:
        facts, known = _facts(hub, f"leaked {ident}"), copies()
        if not facts and not any(ident in version["Key"] for version in known):
            raise InputError(f"{hub.name} has no tree or run {ident}", fix=fix)
        operator.show(f"{name} {value}" for name, value in facts)
        operator.show([f"{len(known)} versions in the bucket"] if own.bucket else [])
        code = "no record: these runs stay, without their code"
        operator.show(["all backups of records, since each has this run" if is_run else code])
        operator.confirm(f"delete all of this for ever from {hub.name}?")
        hub.shell(f"{_ALONE} purge {ident}", seconds=86_400)
        if client and own.bucket:
            # Listed again: a backup may have run until now.
            for version in copies():
                client.call("s3", own.bucket.region, "delete_object", Bucket=own.bucket.name, **version)
        if is_run:
            hub.shell("systemctl start --no-block bedplate-hub-backup", seconds=60)
    return Result([f"{ident} is deleted, and a new backup starts" if is_run else f"{ident} is deleted"])


def prune(operator: Operator, older: str, *, dry_run: bool) -> Result:
    """Delete packs and logs that only older runs need, after a question with their sizes. Raises InputError."""
    if not re.fullmatch("[1-9][0-9]{0,3}d", older):
        raise InputError(f"no number of days: {older}", fix="write a number and d, such as 90d")
    plan = plan_of(operator)
    own = hub_of(plan)
    with connected_hub(operator, plan) as hub:
        (_, until), *sizes = _facts(hub, f"old {older[:-1]}")
        operator.show(f"{int(size) / 1e6:.2f} MB {path}" for size, path in sizes)
        if dry_run or len(sizes) == 1:
            return Result([f"{hub.name} stays as it is"])
        copied = "backups keep their copies, and a restore brings them back"
        operator.show([copied if own.bucket or own.backup else "no other machine has a copy"])
        operator.confirm(f"delete all of this from {hub.name}?")
        hub.shell(f"{_ALONE} prune {until}", seconds=86_400)
    return Result([f"{hub.name} has {int(sizes[-1][0]) / 1e6:.2f} MB less"])


def rotate(operator: Operator, *, now: bool) -> Result:
    """Make a new key for tokens, after a question if it ends those of runs."""
    with connected_hub(operator, plan_of(operator)) as hub:
        if now:
            operator.confirm("end the tokens of all running runs, so that their records end?")
        hub.shell(f"{_PROGRAM} rotate{' now' if now else ''}", seconds=60)
    former = "no longer valid" if now else "valid until the next rotation"
    return Result([f"{hub.name} has a new key; tokens of runs by the former key are {former}"])


def refuse_tokens(operator: Operator, plan: FleetPlan, uid: int) -> None:
    """Refuse the hub's tokens of a person from now on. Raises PartialError if the hub is not reached."""
    with connected_hub(operator, plan) as hub:
        try:
            hub.shell(f"bedplate-hub remove {uid}", seconds=60)
        except PartialError as error:
            raise PartialError(f"the tokens of the hub: {error.what}", fix=error.fix) from None
    operator.show([f"{hub.name} refuses the person's tokens"])
