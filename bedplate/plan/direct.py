"""Sites whose gateways have a tunnel of their own: which, and who of the two dials.

Reads the fleet file alone, and makes no tunnel. What the checks refuse is left out: an unknown site, a site and itself.
"""

from bedplate.spec import Fleet


def joined_sites(fleet: Fleet) -> tuple[tuple[str, str], ...]:
    """Return each two sites that are joined, once, in the order of the alphabet, whichever of the two says so."""
    said = ((name, other) for name, site in fleet.sites.items() for other in site.gateway.joins)
    known = (tuple(sorted(two)) for two in said if two[0] != two[1] and two[1] in fleet.sites)
    return tuple(sorted({(one, other) for one, other in known}))


def dialler(fleet: Fleet, pair: tuple[str, str]) -> str:
    """Return which of two sites dials: the one that cannot be dialled, else the first in the alphabet."""
    return min(pair, key=lambda name: (not fleet.sites[name].gateway.behind_nat, name))
