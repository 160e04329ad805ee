"""A fleet of any number of regions, each about as large as one of `examples/lab.yaml`."""

from typing import Any

from bedplate.catalog import Catalog, load_catalog
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.spec import Fleet

TYPES = ("m7i.4xlarge", "c7i.4xlarge", "m6i.4xlarge")


def plan_of(regions: int) -> FleetPlan:
    """Return the plan of a fleet over that many regions of three zones, with a pool of each group in every one."""
    catalog = load_catalog()
    chosen = _regions(catalog)[:regions]
    return plan_fleet(Fleet.model_validate(_document(catalog, chosen)), Record({}), catalog)


def _regions(catalog: Catalog) -> tuple[str, ...]:
    """Return the regions that need no opt-in, have three zones and offer all types in them."""
    return tuple(
        name
        for name, facts in catalog.regions.items()
        if not facts.opt_in and all(len(catalog.offered(one, name)) >= 3 for one in TYPES)  # noqa: PLR2004
    )


def _document(catalog: Catalog, regions: tuple[str, ...]) -> dict[str, Any]:
    group = {"use": "kubernetes", "types": TYPES, "nodes": {"min": 0, "max": 10}}
    ladder = tuple({"region": name, "market": market} for name in regions for market in ("spot", "on-demand"))
    return {
        "version": 1,
        "name": "wide",
        "account": "111122223333",
        "owner": "ops@lab.example",
        "domain": "wide.internal",
        "network": {"supernet": "10.64.0.0/10"},
        "regions": {
            name: {"home": not number, "zones": tuple(catalog.regions[name].zones[:3])}
            for number, name in enumerate(regions)
        },
        "groups": {f"group-{number}": {**group, "ladder": ladder} for number in range(4)},
        "storage": {
            **{f"home-{name}": {"kind": "efs", "region": name, "mount": f"/home/{name}"} for name in regions},
            "datasets": {"kind": "s3", "regions": regions},
            "results": {"kind": "s3", "regions": regions, "expire_days": 365},
        },
    }
