"""The catalogue: every rule by its code, and the one way to make a fault of it.

Tables only, one for each part of the fleet file: E0 the file, E1 shape, E2 network and sites, E3 groups, E4
names and storage, E5 people and secrets, E6 format, image, Kubernetes and VPN, E7 exceptions, E8 cost. W rules
warn.
"""

from collections.abc import Container, Mapping
from types import MappingProxyType

from bedplate.checks.fault import Fault
from bedplate.checks.rules.address import ADDRESS_RULES
from bedplate.checks.rules.budget import BUDGET_RULES
from bedplate.checks.rules.cluster import EXCEPTION_RULES, FORMAT_RULES, KUBERNETES_RULES, VPN_RULES
from bedplate.checks.rules.file import FILE_RULES
from bedplate.checks.rules.group import GROUP_RULES
from bedplate.checks.rules.image import IMAGE_RULES
from bedplate.checks.rules.ladder import LADDER_RULES
from bedplate.checks.rules.life import LIFE_RULES
from bedplate.checks.rules.name import NAME_RULES
from bedplate.checks.rules.network import NETWORK_RULES
from bedplate.checks.rules.person import PERSON_RULES, SECRET_RULES
from bedplate.checks.rules.rule import Rule
from bedplate.checks.rules.shape import SHAPE_RULES
from bedplate.checks.rules.site import SITE_RULES
from bedplate.checks.rules.storage import STORAGE_RULES

__all__ = ["RULES", "Rule", "applying", "fault"]

# Rules of every file, then by the key of the file that they are about.
_ALWAYS = (
    *(*FILE_RULES, *SHAPE_RULES, *NETWORK_RULES, *ADDRESS_RULES),
    *(*NAME_RULES, *SECRET_RULES, *FORMAT_RULES, *IMAGE_RULES),
)
_ABOUT = {
    "sites": SITE_RULES,
    "groups": (*GROUP_RULES, *LADDER_RULES, *LIFE_RULES),
    "storage": STORAGE_RULES,
    "people": PERSON_RULES,
    "kubernetes": KUBERNETES_RULES,
    "vpn": VPN_RULES,
    "budget": BUDGET_RULES,
    "allow": EXCEPTION_RULES,
}

RULES: Mapping[str, Rule] = MappingProxyType(
    {rule.code: rule for table in (_ALWAYS, *_ABOUT.values()) for rule in table}
)


def applying(keys: Container[str]) -> int:
    """Return how many rules apply to a file with these keys at its top."""
    return len(_ALWAYS) + sum(len(table) for key, table in _ABOUT.items() if key in keys)


def fault(code: str, key: str, message: str, fix: str = "") -> Fault:
    """Return a fault under the rule of that code; without a `fix` of its own it tells the rule's."""
    rule = RULES[code]
    return Fault(code, rule.level, key, message, fix or rule.fix)
