"""What a fleet file declares, in a few words."""

from bedplate.report.columns import counted
from bedplate.spec import Fleet


def summary(fleet: Fleet) -> str:
    """Return `3 regions, 1 site, 5 groups, 5 stores, 2 people`, leaving out what there is none of."""
    parts = (
        (len(fleet.regions), "region", "regions"),
        (len(fleet.sites), "site", "sites"),
        (len(fleet.groups), "group", "groups"),
        (len(fleet.storage), "store", "stores"),
        (len(fleet.people), "person", "people"),
    )
    return ", ".join(counted(*part) for part in parts if part[0])
