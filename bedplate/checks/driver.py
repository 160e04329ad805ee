"""The driver branch on the image, against the GPUs that it is to run and the kernel that it is to run in."""

from collections.abc import Iterator

from bedplate.catalog.software import ChipFacts, DriverFacts, read_kernel, write_kernel
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.group import known_types
from bedplate.checks.rules import fault


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
