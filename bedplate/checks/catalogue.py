"""All rules and checks, collected from the topic modules.

Codes: E0 the file, E1 shape, E2 network and sites, E3 groups, E4 names, storage and live fleets, E5 people and
secrets, E6 format, image, Kubernetes, VPN and hub, E7 exceptions, E8 cost. Codes that start with W are warnings.
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
    hub,
    images,
    ladders,
    lifetimes,
    names,
    people,
    regions,
    sites,
    storage,
)
from bedplate.checks.diagnostics import Context
from bedplate.plan import faults
from bedplate.rules import Fault, Rule, rules_of
from bedplate.spec import fleet, network, sshkey, text
from bedplate.spec import groups as group_keys


class Topic(Protocol):
    """A topic module."""

    @property
    def CHECKS(self) -> tuple[Callable[[Context], Iterator[Fault]], ...]:  # noqa: N802  # a module's constant
        """The functions that find violations."""


TOPICS: tuple[Topic, ...] = (
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
    hub,
    examples,
    access,
)
# The rules of the others are checked while the file is read or planned; exceptions apply to the result of all checks.
_MODULES = (*TOPICS, file, exceptions, text, sshkey, network, group_keys, fleet, faults)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in rules_of(_MODULES)})


def check_fleet(context: Context) -> Iterator[Fault]:
    """Yield every fault that the checks find, including allowed ones."""
    for topic in TOPICS:
        for check in topic.CHECKS:
            yield from check(context)


def count_rules(sections: Container[str]) -> int:
    """Return how many rules apply to a file with these top-level keys."""
    return sum(not rule.section or rule.section in sections for rule in RULES.values())
