"""All rules and checks, collected from the topic modules.

Codes: E0 the file, E1 shape, E2 network and sites, E3 groups, E4 names, storage and live fleets, E5 people and
secrets, E6 format, image, Kubernetes and VPN, E7 exceptions, E8 cost. Codes that start with W are warnings.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from bedplate.checks import (
    access,
    addresses,
    cluster,
    examples,
    exceptions,
    file,
    groups,
    images,
    ladders,
    lifetimes,
    names,
    people,
    regions,
    sites,
    storage,
)
from bedplate.checks.diagnostics import Context, Fault, Rule

__all__ = ["RULES", "Rule", "check_fleet", "count_rules"]


class Topic(Protocol):
    """A topic module."""

    @property
    def RULES(self) -> tuple[Rule, ...]:  # noqa: N802  # a module's constant
        """The rules of the topic."""

    @property
    def CHECKS(self) -> tuple[Callable[[Context], Iterator[Fault]], ...]:  # noqa: N802  # a module's constant
        """The functions that find violations; other rules are checked while the file is read or planned."""


TOPICS: tuple[Topic, ...] = (
    file,
    addresses,
    regions,
    sites,
    groups,
    ladders,
    lifetimes,
    names,
    images,
    storage,
    people,
    cluster,
    examples,
    access,
    exceptions,
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for topic in TOPICS for rule in topic.RULES})


def check_fleet(context: Context) -> Iterator[Fault]:
    """Yield every fault that the checks find, including allowed ones."""
    for topic in TOPICS:
        for check in topic.CHECKS:
            yield from check(context)


def count_rules(sections: Container[str]) -> int:
    """Return how many rules apply to a file with these top-level keys."""
    return sum(not rule.section or rule.section in sections for rule in RULES.values())
