"""Images and software: driver branches, the software set, frameworks, Kubernetes versions, and images in the lock."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from bedplate.catalog import Catalog
from bedplate.catalog.tables import (
    Arch,
    ChipFacts,
    DriverFacts,
    minor_of,
    read_kernel,
    read_version,
    write_kernel,
)
from bedplate.checks.diagnostics import Context, one_of
from bedplate.checks.groups import known_types
from bedplate.checks.lifetimes import NOTICE, ending
from bedplate.plan import FleetPlan
from bedplate.rules import Fault, Rule, fault
from bedplate.spec import Fleet
from bedplate.spec.groups import Group
from bedplate.spec.sites import Machine


class _Gpu(NamedTuple):
    """A known NVIDIA GPU: the keys of its group or machine, of its model, and of its driver branch."""

    place: str
    key: str
    chip: ChipFacts
    driver_key: str
    branch: str


def check_driver(context: Context) -> Iterator[Fault]:
    """Yield faults of an unknown, ended, unsuitable or useless driver branch."""
    drivers = context.catalog.drivers
    if not drivers:
        return
    gpus = tuple(_nvidia_gpus(context))
    packaged = [branch for branch in sorted(drivers) if drivers[branch].packaged == branch]
    # A branch that must change is reported for its GPU only.
    unfit = {gpu.driver_key for gpu in gpus if not _supports(gpu.branch, gpu.chip)}
    for key, branch in {gpu.driver_key: gpu.branch for gpu in gpus}.items():
        if branch in drivers and key not in unfit:
            yield from _check_branch(context, key, drivers[branch])
        elif branch not in drivers:
            yield fault(UNKNOWN_BRANCH, key, f"NVIDIA has no driver branch {branch}", one_of(packaged))
    for gpu in gpus:
        together = [other.chip for other in gpus if other.driver_key == gpu.driver_key]
        suitable = [branch for branch in packaged if all(_supports(branch, chip) for chip in together)]
        yield from _check_chip(gpu, suitable)
    places = {gpu.place for gpu in gpus}
    for place, machine in _machines(context.fleet):
        if machine.driver and place not in places:
            chip = context.catalog.chip_in(machine.gpus.model) if isinstance(machine, Machine) and machine.gpus else ""
            fix = f"write gpus.model: {chip}" if chip else "delete driver"
            yield fault(DRIVER_UNUSED, f"{place}.driver", "no known NVIDIA GPU here needs a driver", fix)
        if machine.mig and place not in places:
            yield fault(MIG_WITHOUT_GPU, f"{place}.mig", "no known NVIDIA GPU here can be split", "delete mig")


def _check_branch(context: Context, key: str, facts: DriverFacts) -> Iterator[Fault]:
    yield from _check_end_of_support(context, key, facts)
    yield from _check_kernel(context, key, facts)
    yield from _check_packages(key, facts)


def check_software(context: Context) -> Iterator[Fault]:
    """Yield a fault if the catalog does not have the set of versions."""
    name, sets = context.fleet.software, context.catalog.software
    if name and name not in sets:
        message = f"no software set {name} in the catalog"
        yield fault(UNKNOWN_SOFTWARE, "software", message, one_of(f"'{known}'" for known in sets))


def _nvidia_gpus(context: Context) -> Iterator[_Gpu]:
    """Yield the known NVIDIA GPU of every type of a group and of every machine of a site."""
    fleet, chips = context.fleet, context.catalog.chips
    default = fleet.image.driver or context.catalog.software_set(fleet.software).driver
    for name, group in fleet.groups.items():
        for index, facts in known_types(context.catalog, group):
            if facts.gpu and facts.gpu.name in chips:
                place = f"groups.{name}"
                driver_key = f"{place}.driver" if group.driver else "image.driver"
                yield _Gpu(place, f"{place}.types.{index}", chips[facts.gpu.name], driver_key, group.driver or default)
    for name, site in fleet.sites.items():
        for label, machine in site.machines.items():
            if machine.gpus and machine.gpus.model in chips:
                place = f"sites.{name}.machines.{label}"
                driver_key = f"{place}.driver" if machine.driver else "image.driver"
                chip = chips[machine.gpus.model]
                yield _Gpu(place, f"{place}.gpus.model", chip, driver_key, machine.driver or default)


def _check_end_of_support(context: Context, key: str, facts: DriverFacts) -> Iterator[Fault]:
    if facts.ends and facts.ends < context.today + NOTICE:
        ends, branch = max((other.ends, other.branch) for other in context.catalog.drivers.values() if other.ends)
        fix = f"write '{branch}', supported until {ends}" if ends >= context.today + NOTICE else ""
        message = ending(f"NVIDIA's support of driver branch {facts.branch}", facts.ends, context.today)
        yield fault(UNSUPPORTED_BRANCH, key, message, fix)


def _check_kernel(context: Context, key: str, facts: DriverFacts) -> Iterator[Fault]:
    kernel = context.fleet.image.kernel
    if kernel and facts.kernel and read_kernel(kernel) > facts.kernel:
        newest = write_kernel(facts.kernel)
        message = f"driver branch {facts.branch} builds on kernels up to {newest}, not on {kernel}"
        drivers = sorted(context.catalog.drivers.values(), key=lambda other: other.branch)
        suitable = [other.branch for other in drivers if other.kernel and other.kernel >= read_kernel(kernel)]
        yield fault(DRIVER_KERNEL, key, message, f"write '{suitable[0]}', or an older kernel" if suitable else "")


def _check_packages(key: str, facts: DriverFacts) -> Iterator[Fault]:
    if facts.packaged != str(facts.branch):
        other = facts.packaged
        message = (
            f"Ubuntu 24.04 installs branch {other} under the package names of {facts.branch}"
            if other
            else f"Ubuntu 24.04 has no packages of driver branch {facts.branch}"
        )
        yield fault(BRANCH_NOT_PACKAGED, key, message, f"write '{other}'" if other else "")


def check_frameworks(context: Context) -> Iterator[Fault]:
    """Yield a fault for each machine on which PyTorch is wanted and cannot be used."""
    old = {gpu.place: gpu.chip for gpu in _nvidia_gpus(context) if not gpu.chip.open}
    for place, machine in _machines(context.fleet):
        key, chip = f"{place}.frameworks", old.get(place)
        if machine.frameworks and not (machine.use and machine.use.is_ssh):
            yield fault(FRAMEWORKS_UNUSABLE, key, "frameworks are for machines with use: ssh", "delete frameworks")
        elif machine.frameworks and chip:
            message = (
                f"PyTorch has no code for {chip.name.upper()} ({chip.generation.capitalize()}), only for newer GPUs"
            )
            yield fault(FRAMEWORKS_UNUSABLE, key, message, "delete frameworks")


def _machines(fleet: Fleet) -> Iterator[tuple[str, Group | Machine]]:
    """Yield each group and each machine of a site, with its key."""
    for name, group in fleet.groups.items():
        yield f"groups.{name}", group
    for name, site in fleet.sites.items():
        for label, machine in site.machines.items():
            yield f"sites.{name}.machines.{label}", machine


def _supports(branch: str, chip: ChipFacts) -> bool:
    return chip.first <= int(branch) <= (chip.last or int(branch))


def _check_chip(gpu: _Gpu, suitable: Sequence[str]) -> Iterator[Fault]:
    """Yield a fault of a branch that does not support a GPU; `suitable` support all GPUs with the same driver key."""
    chip, branch = gpu.chip, gpu.branch
    name = f"{chip.name.upper()} ({chip.generation.capitalize()})"
    # Without a branch for all, this group or machine needs one of its own.
    key, fitting = (gpu.driver_key, suitable[0]) if suitable else (f"{gpu.place}.driver", str(chip.last or chip.first))
    if chip.last and int(branch) > chip.last:
        message = f"driver branch {branch} does not support {name}: {chip.last} is the last that does"
        yield fault(DRIVER_TOO_NEW, gpu.key, message, f"write {key}: '{fitting}'")
    elif int(branch) < chip.first:
        message = f"driver branch {branch} does not support {name}: it needs {chip.first} or newer"
        yield fault(DRIVER_TOO_OLD, gpu.key, message, f"write {key}: '{fitting}'")


def check_images(plan: FleetPlan, catalog: Catalog) -> Iterator[Fault]:
    """Yield faults of pools, control plane and hub without a recorded image for their region and architecture."""
    images = plan.record.images
    if not images:
        return
    for key, region, types in _launches(plan):
        for arch in sorted({_arch(name, catalog) for name in types}):
            if f"{region}/{arch}" not in images:
                message = f"fleet.lock has no image for {arch} in {region}, only {', '.join(sorted(images))}"
                yield fault(NO_IMAGE, key, message)


def _launches(plan: FleetPlan) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield key, region and types of everything that starts machines."""
    for pool in plan.pools:
        yield f"groups.{pool.group}.ladder.{pool.rung}", pool.region, pool.types
    if plan.control_plane:
        yield "kubernetes.control_plane", plan.home.name, (plan.control_plane.type,)
    if plan.hub and plan.hub.region:
        yield "hub", plan.hub.region, (plan.hub.type,)


def _arch(name: str, catalog: Catalog) -> Arch:
    facts = catalog.types.get(name)
    return facts.arch if facts else "x86_64"


# Kubernetes version skew policy, kubelet, read 2026-11.
MOST_SKEW = 3


def check_versions(context: Context) -> Iterator[Fault]:
    """Yield faults of unreleased and unsupported versions, and of kubelets that do not match the control plane."""
    cluster, kubelet = context.fleet.kubernetes, context.fleet.image.kubernetes
    if cluster is None:
        return
    yield from _check_release(context, "kubernetes.version", cluster.version)
    if kubelet is not None:
        yield from _check_release(context, "image.kubernetes", kubelet)
        yield from _check_skew(cluster.version, kubelet)


def _check_release(context: Context, key: str, version: str) -> Iterator[Fault]:
    releases = context.catalog.releases
    if not releases:
        return
    newest, minor = max(releases, key=read_kernel), minor_of(version)
    facts = releases.get(minor)
    if read_kernel(minor) > read_kernel(newest):
        message = f"Kubernetes {version} is not released; the newest version is {newest}"
        yield fault(UNRELEASED_VERSION, key, message, f"write '{newest}'")
    elif facts is None:
        yield fault(UNSUPPORTED_VERSION, key, f"support of Kubernetes {minor} ended", f"write '{newest}'")
    elif facts.ends < context.today + NOTICE:
        message = ending(f"support of Kubernetes {minor}", facts.ends, context.today)
        yield fault(UNSUPPORTED_VERSION, key, message, f"write '{newest}'")
    if facts and read_version(version) > read_version(facts.patch):
        message = f"{version} is newer than the newest known patch {facts.patch}"
        yield fault(UNKNOWN_PATCH, key, message, f"write '{facts.patch}'")


def _check_skew(version: str, kubelet: str) -> Iterator[Fault]:
    (major, minor), (node_major, node_minor) = read_version(version)[:2], read_version(kubelet)[:2]
    if (node_major, node_minor) > (major, minor):
        message = f"the image's kubelet {kubelet} is newer than the control plane {version}"
    elif minor - node_minor > MOST_SKEW:
        message = (
            f"the image's kubelet {kubelet} is more than {MOST_SKEW} versions older than the control plane {version}"
        )
    else:
        return
    yield fault(VERSION_SKEW, "image.kubernetes", message, f"write '{version}', or delete it")


_DRIVERS = "NVIDIA data center drivers"

CHECKS = (check_driver, check_software, check_frameworks, check_versions)
VERSION_SKEW = Rule(
    "E607",
    "A kubelet cannot be newer than its control plane, or more than three minor versions older.",
    "write the version of the cluster",
    "Kubernetes, Version Skew Policy",
)
UNKNOWN_BRANCH = Rule("E610", "The catalog has no such driver branch.", "write it as '580'", _DRIVERS, allowable=True)
DRIVER_TOO_OLD = Rule(
    "E611",
    "A driver supports only GPUs that existed at its release. Blackwell needs branch 570 or newer.",
    "write a newer branch",
    "NVIDIA data center driver release notes",
    allowable=True,
)
DRIVER_TOO_NEW = Rule(
    "E612",
    "Branch 580 is the last for Maxwell, Pascal and Volta. These GPUs need its closed kernel modules.",
    "write '580', or newer GPUs",
    "NVIDIA Unix driver deprecation schedule",
    allowable=True,
)
DRIVER_KERNEL = Rule(
    "E613",
    "The driver branch has no modules for this kernel.",
    "write a newer branch, or an older kernel",
    "NVIDIA driver release notes",
    allowable=True,
)
UNSUPPORTED_BRANCH = Rule(
    "W614",
    "NVIDIA fixes bugs and vulnerabilities of a branch until this day. Warned of 60 days before.",
    "write a supported branch",
    _DRIVERS,
    allowable=True,
)
UNKNOWN_SOFTWARE = Rule("E621", "The catalog has no such set of versions.", "delete it, for the newest set")
BRANCH_NOT_PACKAGED = Rule(
    "E622",
    "The packages of a replaced branch only depend on those of its successor, so versions would differ.",
    "write '580'",
    "Ubuntu 24.04, noble-updates",
    allowable=True,
)
DRIVER_UNUSED = Rule("W623", "A driver branch is for NVIDIA GPUs.", "delete it")
MIG_WITHOUT_GPU = Rule("E361", "MIG is of NVIDIA GPUs.", "delete mig")
FRAMEWORKS_UNUSABLE = Rule(
    "E355",
    "PyTorch's packages support Turing and newer GPUs; workers run it in containers.",
    "delete frameworks",
    "PyTorch, release compatibility matrix",
)
_group_rule = partial(Rule, section="groups")
NO_IMAGE = _group_rule(
    "E349",
    "Once fleet.lock has images, a machine without one would start from Ubuntu's image.",
    "copy or build an image there, and record it in fleet.lock",
    allowable=True,
    late=True,
)
_cluster_rule = partial(Rule, section="kubernetes")
UNRELEASED_VERSION = _cluster_rule(
    "E615",
    "The catalog has no such version of Kubernetes.",
    "write a released version",
    "kubernetes.io/releases",
    allowable=True,
)
UNSUPPORTED_VERSION = _cluster_rule(
    "W616",
    "Kubernetes fixes bugs and vulnerabilities of a version until this day. Warned of 60 days before.",
    "write a supported version",
    "kubernetes.io/releases",
    allowable=True,
)
UNKNOWN_PATCH = _cluster_rule(
    "W643",
    "The catalog does not have this patch. If nobody has released it, no machine can install it.",
    "compare it with the list of releases, or write a known patch",
    "kubernetes.io/releases",
    allowable=True,
)
