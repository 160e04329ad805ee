"""The later fleet file of `rehearse --changed`: its stacks, the edits that lead to it, and which key asks for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.cli.opening import opened, replanned
from bedplate.cli.waves import Waves, waves_of_change
from bedplate.load import Loaded
from bedplate.plan import FleetPlan
from bedplate.plan.origin import Origin, origin
from bedplate.update.consequence import Consequence, consequences


@dataclass(frozen=True, slots=True)
class Later:
    """What a fleet is to become; `key` tells the key, of either file, that a resource comes from."""

    waves: Waves
    edits: tuple[Consequence, ...]
    key: Origin


def later_fleet(path: Path, loaded: Loaded, plan: FleetPlan, asked: Sequence[str]) -> Later:
    """Return what a fleet with this plan becomes by a later file; FleetFaults where that is refused."""
    changed = opened(path)
    after = replanned(changed, plan)
    return Later(
        waves_of_change(after, asked),
        consequences(loaded.fleet, changed.fleet),
        lambda stack, name: origin(after, stack, name, plan),
    )
