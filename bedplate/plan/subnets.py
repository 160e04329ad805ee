"""The subnets of every region, and why a region cannot have the zones that the file names."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.plan.fault import PlanFault
from bedplate.plan.paths import is_nested, region_path
from bedplate.plan.record import Record
from bedplate.plan.zones import EDGE_BITS, REGION_NARROWEST, REGION_WIDEST, SLOTS, fits, zone_blocks
from bedplate.spec import Fleet

Blocks = Mapping[str, IPv4Network]


@dataclass(frozen=True, slots=True)
class Subnets:
    """Subnets by the path of their region, and the faults of the regions that got none."""

    of_region: dict[str, Blocks]
    faults: tuple[PlanFault, ...]


def subnets(fleet: Fleet, record: Record, blocks: Blocks) -> Subnets:
    """Return the subnets of each region that has a block."""
    held = _held(record)
    found: dict[str, Blocks] = {}
    faults: list[PlanFault] = []
    for name, region in fleet.regions.items():
        path = region_path(name)
        block = blocks.get(path)
        if block is None:
            continue
        zones = zone_blocks(name, block, region.zones, held[path]) if fits(block) else None
        if zones is None:
            faults.append(_refusal(fleet, name, block))
        else:
            found[path] = zones
    return Subnets(found, tuple(faults))


def _held(record: Record) -> defaultdict[str, dict[str, IPv4Network]]:
    held: defaultdict[str, dict[str, IPv4Network]] = defaultdict(dict)
    for path, block in record.blocks.items():
        if is_nested(path):
            held[path.partition("/zone/")[0]][path] = block
    return held


def _refusal(fleet: Fleet, name: str, block: IPv4Network) -> PlanFault:
    if fits(block):
        return _no_slot(name, block)
    declared = fleet.regions[name].block is not None
    return _misfit(f"regions.{name}.block" if declared else "network.region_size", block.prefixlen)


def _no_slot(name: str, block: IPv4Network) -> PlanFault:
    return PlanFault(
        code="E235",
        key=f"regions.{name}.zones",
        message=f"{block} has places for {SLOTS} zones; those of the file and of the lock together are more",
        fix=f"fewer zones, or release one that is gone: `--release {region_path(name)}/zone/...`",
    )


def _misfit(key: str, prefix: int) -> PlanFault:
    if prefix < REGION_WIDEST:
        why, fix = f"AWS takes no VPC wider than /{REGION_WIDEST}", f"/{REGION_WIDEST}"
    else:
        edge = prefix + EDGE_BITS
        why = f"two subnets a zone do not fit: an edge would be /{edge}, and AWS takes none smaller than /28"
        fix = f"/{REGION_NARROWEST} or wider"
    return PlanFault(code="E234", key=key, message=f"a region's block cannot be /{prefix}: {why}", fix=fix)
