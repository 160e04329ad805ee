"""First boots of machines: which ones failed in the last hour, and whether a pool or one of its zones has failed.

A boot has failed if its launch failed after an instance existed, if AWS gave a reason that is not known, or if its
machine is late. Only a machine that became a node is a success: a launch says nothing about the image or the zone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bedplate.capacity.observation import FAILURES, NOT_READY, Activity, Machine, Pool

WINDOW = 3600.0
"""Seconds for which a failed boot counts, from its end."""
MANY = 3
"""The failed boots in a row that fail a pool or a zone; of slow ones, one less."""
SHARE = 0.3
"""The share of boots that may fail, if at least `MANY` do."""
# One boot that took so long fails a pool that has no other result: its pods would wait for as long again.
_SLOW = 300.0
# Seconds in which a zone is taken out of its group.
_LEAVING = 120.0


@dataclass(frozen=True, slots=True)
class Boot:
    """A failed first boot: its launch, its end or the time at which it was late, its zone, and AWS's text.

    `existed` is false if AWS made no machine, for a reason that is not known.
    """

    launched: float
    ended: float
    zone: str | None = None
    text: str = ""
    existed: bool = True


def is_boot_failure(launch: Activity) -> bool:
    """Return whether a failed launch tells of the machine: it existed, or AWS's reason is not known."""
    return not launch.ok and (launch.machine is not None or launch.code == NOT_READY or launch.code not in FAILURES)


def failed_boots(
    launches: Iterable[Activity],
    late: Iterable[Machine],
    earlier: Mapping[str, Boot],
    ended: Collection[str],
    now: float,
) -> Mapping[str, Boot]:
    """Return the failed boots of a pool in the last hour, by machine or launch; AWS reports only the last launches.

    Machines that the planner has `ended` before a result are none, although AWS reports a failed launch.
    """
    seen = {
        launch.machine or launch.id: Boot(
            launch.time, launch.end, launch.zone, launch.text, launch.machine is not None or launch.code == NOT_READY
        )
        for launch in launches
        if is_boot_failure(launch) and launch.machine not in ended
    }
    seen |= {machine.id: Boot(machine.launched, now, machine.zone) for machine in late if machine.id not in seen}
    # The first report of a boot has its end: a late machine is late again in each observation.
    boots = {**seen, **earlier}
    return {name: boot for name, boot in boots.items() if now - boot.ended <= WINDOW}


def failing(pool: Pool, machines: Sequence[Machine], boots: Iterable[Boot]) -> tuple[Sequence[Boot], tuple[str, ...]]:
    """Return the boots by which a pool has failed, none if it has not, and the zones if others of the pool work.

    A zone without a result yet is awaited if others fail: with one bad zone, its machines are the first to end.
    """
    ordered = sorted(boots, key=lambda boot: boot.launched)
    nodes = [machine for machine in machines if machine.node]
    zones = sorted((*pool.zones, *pool.out))
    bad = tuple(zone for zone in zones if _has_failed(*_within({zone}, ordered, nodes)))
    if working := set(zones) - set(bad):
        failed, joined = _within(working, ordered, nodes)
        results = {boot.zone for boot in failed}
        awaited = {machine.zone for machine in machines if machine.node is None} & working - results
        is_failed = _has_failed(failed, joined) or _is_slow(failed, machines)
        if (awaited and None not in results) or not is_failed:
            return _within(set(bad), ordered, ())[0] if bad else (), bad
    return ordered, ()


def are_elsewhere(machines: Iterable[Machine], boots: Sequence[Boot]) -> bool:
    """Return whether a pool works or boots in other zones than those of failed boots, and uses these no more."""
    since, zones = boots[0].launched - WINDOW, {boot.zone for boot in boots}
    known = sorted(boot.ended for boot in boots)[:MANY][-1] + _LEAVING
    is_left = sum(boot.launched > known for boot in boots) < MANY
    return is_left and any(machine.zone not in zones and machine.launched >= since for machine in machines)


def _within(
    zones: set[str], boots: Sequence[Boot], nodes: Sequence[Machine]
) -> tuple[Sequence[Boot], Sequence[Machine]]:
    """Return the failed boots and the nodes in some zones; a boot in an unknown one counts for each."""
    return [boot for boot in boots if boot.zone in {None, *zones}], [node for node in nodes if node.zone in zones]


def _has_failed(boots: Sequence[Boot], nodes: Sequence[Machine]) -> bool:
    """Return whether the last boots failed in a row, or too large a share of the boots of the hour did."""
    if not boots:
        return False
    last = max((node.launched for node in nodes), default=0.0)
    in_row = [boot for boot in boots if boot.launched > last]
    joined = sum(node.launched >= boots[0].launched for node in nodes)
    is_large_share = len(boots) >= MANY and len(boots) > SHARE * (len(boots) + joined)
    return is_large_share or len(in_row) >= (MANY - 1 if all(map(_is_slow_boot, in_row)) else MANY)


def _is_slow_boot(boot: Boot) -> bool:
    return boot.existed and boot.ended - boot.launched >= _SLOW


def _is_slow(boots: Sequence[Boot], machines: Iterable[Machine]) -> bool:
    """Return whether a slow boot has failed, no machine has joined since its launch, and none can join next."""
    slow = [boot for boot in boots if _is_slow_boot(boot)]
    if not slow:
        return False
    first, last = slow[0].launched, slow[-1].ended
    failed = {boot.launched for boot in boots}
    return not any(
        machine.launched >= first if machine.node else machine.launched < last and machine.launched not in failed
        for machine in machines
    )
