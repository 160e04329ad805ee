"""Which instance types are like those of a pool: what EC2 is asked for instead of names.

It describes a CPU pool by its own types; what EC2 then offers is not known here.
"""

import re
from dataclasses import dataclass

from bedplate.catalog import Catalog
from bedplate.catalog.facts import InstanceFacts
from bedplate.plan.pool import PoolPlan

# A family is letters, a generation, and letters for what is special: the first of them may be the processor's maker.
# Source: EC2 instance types guide, "Instance type naming conventions".
_FAMILY = re.compile(r"[a-z]+\d+(?P<special>[a-z]*)")


@dataclass(frozen=True, slots=True)
class Likeness:
    """From the smallest to the largest of a pool's types: CPUs, MiB of memory; and who makes the processors."""

    vcpus: tuple[int, int]
    memory_mib: tuple[int, int]
    makers: tuple[str, ...]


def likeness(pool: PoolPlan, catalog: Catalog) -> Likeness | None:
    """Return what a pool that asks for similar types is like; None where it asks for none, or no type is known."""
    facts = [catalog.types[name] for name in pool.types if name in catalog.types]
    if not pool.offer.similar or not facts:
        return None
    vcpus = [one.vcpus for one in facts]
    memory = [one.memory_mib for one in facts]
    makers = tuple(sorted({maker(one) for one in facts}))
    return Likeness((min(vcpus), max(vcpus)), (min(memory), max(memory)), makers)


def maker(facts: InstanceFacts) -> str:
    """Return who makes a type's processors, in EC2's word: Amazon all of arm64, AMD and Intel the others."""
    if facts.arch == "arm64":
        return "amazon-web-services"
    found = _FAMILY.match(facts.name)
    return "amd" if found is not None and found["special"].startswith("a") else "intel"
