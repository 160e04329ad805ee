"""Facts about regions and instance types, and the data files: a reader and a writer for each kind of fact.

A data file has a heading of `# key: value` lines, then one fact per line.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Literal, cast

Arch = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """One AWS region; `opt_in` if an account must enable it first; `place` is its location in AWS's words."""

    name: str
    zones: tuple[str, ...]
    opt_in: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """The GPUs of a type; `count` is 0 for a part of a GPU; `memory_mib` is the memory of one GPU."""

    name: str
    count: int
    memory_mib: int
    manufacturer: str


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """The accelerators of a type other than GPUs, such as Trainium."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One EC2 instance type.

    A number that the source does not state is 0; `hypervisor` is empty for bare metal. `interfaces_per_card` has one
    entry per network card; `efa` is the maximum of EFA interfaces; `local_nvme_gb` is the total of all local disks.
    """

    name: str
    arch: Arch
    vcpus: int
    memory_mib: int
    network_mbps: int = 0
    ebs_mbps: int = 0
    local_nvme_gb: int = 0
    interfaces_per_card: tuple[int, ...] = ()
    ipv4_per_interface: int = 0
    efa: int = 0
    gpu: GpuFacts | None = None
    accelerator: AcceleratorFacts | None = None
    hypervisor: str = "nitro"

    @property
    def interfaces(self) -> int:
        """The maximum number of network interfaces."""
        return sum(self.interfaces_per_card)


ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One data file: a heading with at least `date` and `source`, and rows without their newline."""

    heading: Mapping[str, str]
    rows: tuple[str, ...]


def read_sheet(text: str) -> Sheet:
    """Return the sheet of a text; raise ValueError if a heading line has no value."""
    lines = text.splitlines()
    heading = [line for line in lines if line.startswith("#")]
    return Sheet(
        heading=dict(line[2:].split(": ", 1) for line in heading),
        rows=tuple(lines[len(heading) :]),
    )


def write_sheet(heading: Mapping[str, str], rows: Iterable[str]) -> str:
    """Return the text of a data file, with the rows in the given order."""
    return "".join(f"{line}\n" for line in (*(f"# {key}: {heading[key]}" for key in heading), *rows))


COLUMNS = (
    "type",
    "arch",
    "vcpus",
    "memory_mib",
    "network_mbps",
    "ebs_mbps",
    "local_nvme_gb",
    "cards",
    "ipv4_per_interface",
    "efa",
    "gpu",
    "accelerator",
    "hypervisor",
)


def read_instances(rows: Iterable[str]) -> dict[str, InstanceFacts]:
    """Return the instance types by name; the first row names the columns."""
    return {instance.name: instance for instance in map(_read_instance, _body(rows, COLUMNS))}


def _body(rows: Iterable[str], columns: Sequence[str]) -> list[str]:
    """Return the rows after the one with the names of the columns."""
    title, *body = rows
    if title != "\t".join(columns):
        raise ValueError(f"the columns must be {', '.join(columns)}")
    return body


def write_instances(types: Iterable[InstanceFacts]) -> tuple[str, ...]:
    """Return the row of column names, then one row per instance type, by name."""
    ordered = sorted(types, key=lambda instance: instance.name)
    return ("\t".join(COLUMNS), *(_write_instance(instance) for instance in ordered))


def _read_instance(row: str) -> InstanceFacts:
    cells = row.split("\t")
    name, arch, vcpus, memory, network, ebs, nvme, cards, ipv4, efa, gpu, accelerator, hypervisor = cells
    return InstanceFacts(
        name=name,
        arch=cast("Arch", arch),
        vcpus=int(vcpus),
        memory_mib=int(memory),
        network_mbps=_read_number(network),
        ebs_mbps=_read_number(ebs),
        local_nvme_gb=_read_number(nvme),
        interfaces_per_card=_read_cards(cards),
        ipv4_per_interface=_read_number(ipv4),
        efa=_read_number(efa),
        gpu=_read_gpu(gpu),
        accelerator=_read_accelerator(accelerator),
        hypervisor="" if hypervisor == ABSENT else hypervisor,
    )


def _write_instance(instance: InstanceFacts) -> str:
    gpu, accelerator = instance.gpu, instance.accelerator
    cells: tuple[str | int, ...] = (
        instance.name,
        instance.arch,
        instance.vcpus,
        instance.memory_mib,
        instance.network_mbps,
        instance.ebs_mbps,
        instance.local_nvme_gb,
        _write_cards(instance.interfaces_per_card),
        instance.ipv4_per_interface,
        instance.efa,
        f"{gpu.count} {gpu.manufacturer} {gpu.name} {gpu.memory_mib}" if gpu else "",
        f"{accelerator.count} {accelerator.name}" if accelerator else "",
        instance.hypervisor,
    )
    return "\t".join(str(cell or ABSENT) for cell in cells)


def _read_number(cell: str) -> int:
    return 0 if cell == ABSENT else int(cell)


def _read_gpu(cell: str) -> GpuFacts | None:
    if cell == ABSENT:
        return None
    count, manufacturer, name, memory = cell.split(" ")
    return GpuFacts(name=name, count=int(count), memory_mib=int(memory), manufacturer=manufacturer)


def _read_accelerator(cell: str) -> AcceleratorFacts | None:
    if cell == ABSENT:
        return None
    count, name = cell.split(" ")
    return AcceleratorFacts(name=name, count=int(count))


def _read_cards(cell: str) -> tuple[int, ...]:
    """Return the interfaces per card: `32x2` is 32 cards with 2 interfaces; commas separate several of these."""
    if cell == ABSENT:
        return ()
    runs = (run.split("x") for run in cell.split(","))
    return tuple(size for count, interfaces in runs for size in [int(interfaces)] * int(count))


def _write_cards(cards: tuple[int, ...]) -> str:
    return ",".join(f"{len(tuple(run))}x{interfaces}" for interfaces, run in groupby(cards))


Offers = Mapping[str, Mapping[str, str]]


def read_offers(rows: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return zone letters by instance type and region."""
    offers: dict[str, dict[str, str]] = {}
    prefix, family = "", list[str]()
    for row in rows:
        if not row.startswith(" "):
            prefix, *sizes = row.split(" ")
            family = [f"{prefix}.{size}" for size in sizes]
            offers |= {name: {} for name in family}
            continue
        region, letters, *sizes = row.split()
        for name in [f"{prefix}.{size}" for size in sizes] or family:
            offers[name][region] = letters
    return offers


def write_offers(offers: Offers) -> tuple[str, ...]:
    """Return the rows of all instance families, by name."""
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(offers):
        family, _, size = name.partition(".")
        families[family].append(size)
    return tuple(row for family in families for row in _family_rows(family, families[family], offers))


def _family_rows(family: str, sizes: list[str], offers: Offers) -> Iterator[str]:
    yield f"{family} {' '.join(sizes)}"
    for region in sorted({region for size in sizes for region in offers[f"{family}.{size}"]}):
        for letters, offered in sorted(_sizes_by_zones(family, sizes, region, offers).items()):
            names = "" if offered == sizes else " " + " ".join(offered)
            yield f"  {region} {letters}{names}"


def _sizes_by_zones(family: str, sizes: list[str], region: str, offers: Offers) -> dict[str, list[str]]:
    """Return the sizes of a family by the letters of the zones in a region that offer them."""
    by_zones: dict[str, list[str]] = defaultdict(list)
    for size in sizes:
        if letters := offers[f"{family}.{size}"].get(region):
            by_zones[letters].append(size)
    return by_zones


def read_prices(rows: Iterable[str]) -> dict[str, float]:
    """Return the prices by instance type."""
    pairs = (row.split("\t") for row in rows)
    return {name: float(price) for name, price in pairs}


def write_prices(prices: Mapping[str, float]) -> tuple[str, ...]:
    """Return one row per instance type, by name."""
    return tuple(f"{name}\t{prices[name]}" for name in sorted(prices))


QUOTAS_COLUMNS = ("name", "service", "code", "default", "market", "families")


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """One quota of a region: its name in bedplate, service and code in AWS, and the default of a new account.

    A quota of vCPUs has the instance families and the market (`on-demand` or `spot`) that it counts. A limit without
    a code is fixed.
    """

    name: str
    service: str
    code: str
    default: int
    market: str = ""
    families: frozenset[str] = frozenset()


def read_quotas(rows: Iterable[str]) -> dict[str, QuotaFacts]:
    """Return the quotas by name; the first row names the columns."""
    return {quota.name: quota for quota in map(_read_quota, _body(rows, QUOTAS_COLUMNS))}


def _read_quota(row: str) -> QuotaFacts:
    name, service, code, default, market, families = row.split("\t")
    return QuotaFacts(
        name=name,
        service=service,
        code="" if code == ABSENT else code,
        default=int(default),
        market="" if market == ABSENT else market,
        families=frozenset() if families == ABSENT else frozenset(families.split(" ")),
    )


# A month in the AWS Pricing Calculator: 365 days of 24 hours, divided by twelve.
HOURS_OF_MONTH = 730


def read_rates(rows: Iterable[str]) -> dict[str, float]:
    """Return USD by billed item, per GB of traffic or else per hour; a month has 730 hours."""
    cells = (row.split("\t") for row in rows)
    return {name: float(usd) / _hours(time) for name, time, usd in cells}


def _hours(time: str) -> int:
    return {"GB": 1, "hour": 1, "month": HOURS_OF_MONTH}[time]


OPT_IN = "opt-in"


def read_regions(rows: Iterable[str]) -> dict[str, RegionFacts]:
    """Return the regions by name."""
    return {region.name: region for region in map(_read_region, rows)}


def _read_region(row: str) -> RegionFacts:
    name, letters, access, place = row.split("\t")
    zones = tuple(name + letter for letter in letters)
    return RegionFacts(name=name, zones=zones, opt_in=access == OPT_IN, place=place)


UTC = "UTC"


def read_time_zones(rows: Iterable[str]) -> frozenset[str]:
    """Return the names of all time zones, including UTC."""
    areas = (row.split(" ") for row in rows)
    return frozenset((UTC, *(f"{area}/{place}" for area, *places in areas for place in places)))


OPEN = "open"


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """A branch of NVIDIA's driver: its newest supported kernel and end of support, or None if not published.

    `packaged` is the branch that Ubuntu 24.04 installs under its package names, empty if it has none.
    """

    branch: int
    kernel: tuple[int, int] | None = None
    ends: date | None = None
    packaged: str = ""


@dataclass(frozen=True, slots=True)
class ChipFacts:
    """A GPU by its name in EC2 or at a site.

    `first` and `last` are the oldest and the newest branch that support it; `last` is None if new branches still do.
    `open`: the open kernel modules support it. `switched`: how many of them in one machine need NVSwitch; `bandwidth`:
    the least GB/s of an all-reduce over these in a burn-in, 0 if unknown.
    """

    name: str
    generation: str
    first: int
    last: int | None
    open: bool
    switched: int = 0
    bandwidth: int = 0

    def needs_switch(self, count: int) -> bool:
        """Return whether NVSwitch connects this number of GPUs in a machine."""
        return 0 < self.switched <= count


def read_kernel(text: str) -> tuple[int, int]:
    """Return a series such as `6.17` as two numbers."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def write_kernel(series: tuple[int, int]) -> str:
    """Return two numbers as a series such as `6.17`."""
    return f"{series[0]}.{series[1]}"


def read_drivers(rows: Iterable[str]) -> dict[str, DriverFacts]:
    """Return the driver branches by number, as strings."""
    cells = (row.split("\t") for row in rows)
    return {
        branch: DriverFacts(
            int(branch),
            None if kernel == ABSENT else read_kernel(kernel),
            None if ends == ABSENT else date.fromisoformat(ends),
            "" if packaged == ABSENT else packaged,
        )
        for branch, kernel, ends, packaged in cells
    }


def read_chips(rows: Iterable[str]) -> dict[str, ChipFacts]:
    """Return the GPUs by name."""
    cells = (row.split("\t") for row in rows)
    return {
        name: ChipFacts(
            *(name, generation, int(first), int(last) if last != ABSENT else None, modules == OPEN),
            *map(_read_number, numbers),
        )
        for name, generation, first, last, modules, *numbers in cells
    }


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """A minor version of Kubernetes: the day on which it gets its last patch, and its newest known patch."""

    ends: date
    patch: str


def read_releases(rows: Iterable[str]) -> dict[str, ReleaseFacts]:
    """Return the minor versions of Kubernetes, oldest first."""
    cells = (row.split("\t") for row in rows)
    return {version: ReleaseFacts(date.fromisoformat(ends), patch) for version, ends, patch in cells}


def read_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version of Kubernetes, such as `1.36` or `v1.36.3`."""
    return tuple(map(int, text.removeprefix("v").split(".")))


def minor_of(version: str) -> str:
    """Return the minor version of a version of Kubernetes: 1.36 of `v1.36.3`."""
    return ".".join(version.removeprefix("v").split(".")[:2])
