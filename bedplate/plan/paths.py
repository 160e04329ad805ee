"""The paths under which blocks are known in fleet.lock and in `plan --json`."""

PODS = "pods"
SERVICES = "services"


def region_path(region: str) -> str:
    """Return the path of a region's VPC block."""
    return f"region/{region}"


def edge_path(region: str, zone: str) -> str:
    """Return the path of a zone's edge subnet."""
    return f"region/{region}/zone/{zone}/edge"


def nodes_path(region: str, zone: str) -> str:
    """Return the path of a zone's node subnet."""
    return f"region/{region}/zone/{zone}/nodes"


def site_path(site: str) -> str:
    """Return the path of a site's LAN."""
    return f"site/{site}"


def pool_path(place: str) -> str:
    """Return the path of the laptop pool of the gateway in a region or on a site."""
    return f"pool/{place}"


def tunnel_path(site: str, region: str, number: int) -> str:
    """Return the path of one tunnel's inside /30."""
    return f"tunnel/{site}/{region}/{number}"


def direct_path(site: str, other: str) -> str:
    """Return the path of the inside /30 of the tunnel between two sites, which are named in the alphabet's order."""
    return f"tunnel/{site}/{other}"


def is_nested(path: str) -> bool:
    """Tell whether the block lies inside another path's block: a subnet in its region."""
    return "/zone/" in path


def is_under(path: str, root: str) -> bool:
    """Tell whether a path is the root or lies below it, by whole words."""
    return path == root or path.startswith(f"{root}/")


def leads_to(path: str, region: str) -> bool:
    """Tell whether a path is of a tunnel to the region of that path, or of the laptop pool in it."""
    kind, *names = path.split("/")
    ends = {"tunnel": names[1:2], "pool": names}.get(kind, [])
    return region in map(region_path, ends)
