"""The driver branch on the image, against the GPUs that it is to run and the kernel that it is to run in."""

from collections.abc import Iterator

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.catalog.tables import ChipFacts, DriverFacts, read_kernel, write_kernel
from bedplate.checks.context import Evidence
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.groups import known_types
from bedplate.plan import FleetPlan


def check_driver(evidence: Evidence) -> Iterator[Fault]:
    """Tell a branch that nobody knows or mends, that its kernel is too new for, or that cannot run a group's GPUs."""
    image, catalog = evidence.fleet.image, evidence.catalog
    chips = dict(_chips(evidence))
    if not chips or not catalog.drivers:
        return
    facts = catalog.drivers.get(image.driver)
    if facts is None:
        known = ", ".join(sorted(catalog.drivers))
        yield fault("E610", "image.driver", f"there is no branch {image.driver}", f"write one of {known}")
    else:
        yield from _life(evidence, facts)
        yield from _kernel(evidence, facts)
    for key, chip in chips.items():
        yield from _runs(key, chip, image.driver)


def _chips(evidence: Evidence) -> Iterator[tuple[str, ChipFacts]]:
    """Yield the NVIDIA GPU of every type of every group, with where the type stands."""
    for name, group in evidence.fleet.groups.items():
        for index, facts in known_types(evidence.catalog, group):
            chip = evidence.catalog.chips.get(facts.gpu.name) if facts.gpu else None
            if chip:
                yield f"groups.{name}.types.{index}", chip


def _life(evidence: Evidence, facts: DriverFacts) -> Iterator[Fault]:
    if facts.ends and facts.ends < evidence.today:
        kept = ((other.ends, other.branch) for other in evidence.catalog.drivers.values() if other.ends)
        ends, branch = max(kept)
        fix = f"write '{branch}', mended until {ends}" if ends >= evidence.today else ""
        yield fault("W614", "image.driver", f"NVIDIA has mended nothing in {facts.branch} since {facts.ends}", fix)


def _kernel(evidence: Evidence, facts: DriverFacts) -> Iterator[Fault]:
    kernel = evidence.fleet.image.kernel
    if kernel and facts.kernel and read_kernel(kernel) > facts.kernel:
        newest = write_kernel(facts.kernel)
        message = f"the modules of {facts.branch} are known to build on kernels up to {newest}, not on {kernel}"
        drivers = sorted(evidence.catalog.drivers.values(), key=lambda other: other.branch)
        fits = [other.branch for other in drivers if other.kernel and other.kernel >= read_kernel(kernel)]
        yield fault("E613", "image.driver", message, f"write '{fits[0]}', or an older kernel" if fits else "")


def _runs(key: str, chip: ChipFacts, branch: str) -> Iterator[Fault]:
    name = f"{chip.name.upper()} ({chip.generation.capitalize()})"
    if not chip.open:
        yield fault("E612", key, f"{name} is older than the open kernel modules of any branch")
    elif int(branch) < chip.first:
        message = f"branch {branch} is too old for {name}, which {chip.first} was the first to run"
        yield fault("E611", key, message, f"write image.driver: '{chip.first}' or newer")


def check_images(plan: FleetPlan, catalog: Catalog) -> Iterator[Fault]:
    """Tell rungs and a control plane in a region, or of an architecture, for which no image is recorded."""
    images = plan.record.images
    if not images:
        return
    have = ", ".join(sorted(images))
    for key, region, types in _places(plan):
        for arch in sorted({_arch(name, catalog) for name in types}):
            if f"{region}/{arch}" not in images:
                message = f"the lock has no image for {arch} in {region}: {have} alone"
                yield fault("E349", key, message)


def _places(plan: FleetPlan) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield where machines start: the key that asks for them, the region, their types."""
    for pool in plan.pools:
        yield f"groups.{pool.group}.ladder.{pool.rung}", pool.region, pool.types
    if plan.control_plane:
        yield "kubernetes.control_plane", plan.home.name, (plan.control_plane.type,)


def _arch(name: str, catalog: Catalog) -> Arch:
    facts = catalog.types.get(name)
    return facts.arch if facts else "x86_64"


# Kubernetes version skew policy, kubelet, read 2026-11.
OLDER = 3


def check_versions(evidence: Evidence) -> Iterator[Fault]:
    """Tell versions that are not out yet or have ended, and kubelets too far from the control plane."""
    cluster, kubelet = evidence.fleet.kubernetes, evidence.fleet.image.kubernetes
    if cluster is None:
        return
    yield from _released(evidence, "kubernetes.version", cluster.version)
    if kubelet is not None:
        yield from _released(evidence, "image.kubernetes", kubelet)
        yield from _skew(cluster.version, kubelet)


def _released(evidence: Evidence, key: str, version: str) -> Iterator[Fault]:
    releases = evidence.catalog.releases
    if not releases:
        return
    newest = max(releases, key=read_kernel)
    if read_kernel(version) > read_kernel(newest):
        yield fault("E615", key, f"Kubernetes {version} is not out: the newest is {newest}", f"write '{newest}'")
    elif version not in releases or releases[version] < evidence.today:
        since = f" since {releases[version]}" if version in releases else ""
        yield fault("W616", key, f"Kubernetes {version} has got no more patches{since}", f"write '{newest}'")


def _skew(version: str, kubelet: str) -> Iterator[Fault]:
    (major, minor), (node_major, node_minor) = read_kernel(version), read_kernel(kubelet)
    if (node_major, node_minor) > (major, minor):
        message = f"the image's kubelet, {kubelet}, is newer than the control plane, {version}"
    elif minor - node_minor > OLDER:
        message = (
            f"the image's kubelet, {kubelet}, is more than {OLDER} versions older than the control plane, {version}"
        )
    else:
        return
    yield fault("E607", "image.kubernetes", message, f"write '{version}', or delete it")


IMAGE_RULES = (
    Rule(
        "E606", "driver-branch", "A branch is what the image pins.", "write it as '580'", "NVIDIA data center drivers"
    ),
    Rule(
        "E607",
        "version-skew",
        "A kubelet is never newer than its control plane, and at most three minor versions older.",
        "write the cluster's version",
        "Kubernetes, Version Skew Policy",
    ),
    Rule(
        "E610",
        "unknown-branch",
        "NVIDIA has no such branch, as far as the catalogue knows.",
        "write it as '580'",
        "NVIDIA data center drivers",
        allowable=True,
    ),
    Rule(
        "E611",
        "driver-too-old",
        "A driver does not know GPUs that came after it; Blackwell needs open kernel modules of 570 or newer.",
        "write a newer branch",
        "NVIDIA data center driver release notes",
        allowable=True,
    ),
    Rule(
        "E612",
        "no-open-modules",
        "The image has NVIDIA's open kernel modules, which run Turing and newer.",
        "choose a type with newer GPUs",
        "NVIDIA open-gpu-kernel-modules",
    ),
    Rule(
        "E613",
        "driver-kernel",
        "Modules that do not build leave a node without its GPUs.",
        "write a newer branch, or an older kernel",
        "NVIDIA driver release notes",
        allowable=True,
    ),
    Rule(
        "W614",
        "branch-ended",
        "What NVIDIA no longer mends stays broken.",
        "write a branch that is mended",
        "NVIDIA data center drivers",
        allowable=True,
    ),
    Rule("E617", "kernel-series", "Modules are built for a series of kernels.", "write it as '6.8'"),
)
