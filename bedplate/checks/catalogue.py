"""The catalogue: every rule by its code, and the one way to make a fault of it.

Tables only, one for each part of the fleet file: E0 the file, E1 shape, E2 network and sites, E3 groups, E4
names and storage, E5 people and secrets, E6 format, image, Kubernetes and VPN, E7 exceptions, E8 cost. W rules
warn.
"""

from collections.abc import Container, Mapping
from types import MappingProxyType

from bedplate.checks.addresses import ADDRESS_RULES
from bedplate.checks.cluster import EXCEPTION_RULES, FORMAT_RULES, KUBERNETES_RULES, VPN_RULES
from bedplate.checks.diagnostics import Rule
from bedplate.checks.file import FILE_RULES, SHAPE_RULES
from bedplate.checks.groups import GROUP_RULES
from bedplate.checks.images import IMAGE_RULES
from bedplate.checks.ladders import LADDER_RULES
from bedplate.checks.lifetimes import BUDGET_RULES, LIFE_RULES
from bedplate.checks.names import NAME_RULES
from bedplate.checks.people import PERSON_RULES, SECRET_RULES
from bedplate.checks.regions import NETWORK_RULES
from bedplate.checks.sites import SITE_RULES
from bedplate.checks.storage import STORAGE_RULES

__all__ = ["RULES", "Rule", "applying"]

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
