"""The address map of the supernet: its eighths, with the blocks in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import groupby

from bedplate.picture.template import Cell, Word, height_of
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.space import is_nested

WIDTH, CHARACTER = 984, 7.6  # of a bar, and of a wide character: they decide whether a block has room for its name
HIGH, LOW, BELOW = 40, 22, 6  # the heights of a bar with blocks and of a free one, and the space below
CAPTIONS = 3  # side by side


@dataclass(frozen=True, slots=True)
class Block:
    """A block of addresses, with its CSS class and its name; `label` is shown in a narrow bar."""

    network: IPv4Network
    role: str
    name: str
    label: str = ""

    @property
    def first(self) -> int:
        """The first address."""
        return int(self.network.network_address)

    @property
    def caption(self) -> Cell:
        """The swatch, the name and the addresses."""
        return (Word(self.name, sign=self.role), Word(self.network, "code"))


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring ranges that are drawn as one bar, with the blocks in them."""

    parts: tuple[IPv4Network, ...]
    blocks: tuple[Block, ...]

    @property
    def first(self) -> int:
        """The first address."""
        return int(self.parts[0].network_address)

    @property
    def size(self) -> int:
        """The number of addresses."""
        return sum(part.num_addresses for part in self.parts)

    def is_named(self, block: Block) -> bool:
        """Return whether the block has room for its name and addresses."""
        longest = max(len(block.name), len(str(block.network)))
        return not block.label and longest * CHARACTER <= block.network.num_addresses / self.size * WIDTH

    @property
    def captions(self) -> tuple[Cell, ...]:
        """The names of the other blocks."""
        return tuple(block.caption for block in self.blocks if not self.is_named(block))

    @property
    def height(self) -> int:
        """The height of the bar."""
        return HIGH if self.blocks else LOW


def bands(plan: FleetPlan) -> Iterator[Band]:
    """Yield the eighths of the supernet; neighbours that are free, or full of one block, are one band."""
    blocks = sorted(_blocks(plan), key=lambda block: block.network)
    parts = plan.supernet.subnets(new_prefix=min(plan.supernet.prefixlen + 3, 32))
    filled = [(part, tuple(block for block in blocks if block.network.overlaps(part))) for part in parts]
    for _, members in groupby(filled, key=lambda item: _merge_key(*item)):
        run = tuple(members)
        yield Band(tuple(part for part, _ in run), run[0][1])


def _merge_key(part: IPv4Network, blocks: tuple[Block, ...]) -> object:
    """Return a key that neighbouring parts share if they are drawn as one band."""
    is_filled = bool(blocks) and part.subnet_of(blocks[0].network)
    return blocks[:1] if is_filled or not blocks else part


def _blocks(plan: FleetPlan) -> Iterator[Block]:
    """Yield the blocks inside the supernet; the lock holds those of removed owners."""
    for path, network in {**plan.record.blocks, **plan.blocks}.items():
        if not is_nested(path) and network.subnet_of(plan.supernet):
            kind, _, place = path.partition("/")
            if path not in plan.blocks:
                yield Block(network, "held", f"held for {place or kind}")
            elif kind == "pool":
                yield Block(network, "laptops", f"laptops, {place}")
            else:
                yield Block(network, kind, place or kind)


def outside(plan: FleetPlan) -> tuple[Cell, ...]:
    """Return the blocks outside the supernet."""
    lans = (Block(block, "site", site.name) for site in plan.sites for block in site.networks.values())
    cells = [lan.caption for lan in lans if not lan.network.subnet_of(plan.supernet)]
    insides = [*(tunnel.inside for tunnel in plan.tunnels), *(tunnel.inside for tunnel in plan.site_tunnels)]
    if insides:
        range_ = f"{min(insides).network_address} to {max(insides).broadcast_address}"
        cells.append((Word(f"{len(insides)} tunnels", sign="tunnels", title="inside addresses"), Word(range_, "code")))
    return tuple(cells)


def map_height(parts: tuple[Band, ...], others: tuple[Cell, ...]) -> int:
    """Return the height of the map with the blocks outside it."""
    bars = sum(band.height + height_of(band.captions, CAPTIONS) + BELOW for band in parts)
    return bars + height_of(others, CAPTIONS) + BELOW
