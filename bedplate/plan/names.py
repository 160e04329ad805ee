"""Names of what the plan makes, each derived from its content: an insertion elsewhere renames nothing."""

from bedplate.spec.group import Market, Rung

# What a pool's name says of how its machines are bought; on-demand is the rule and says nothing.
_MARKETS = {
    Market.ON_DEMAND: "",
    Market.SPOT: "-spot",
    Market.RESERVATION: "-reservation",
    Market.CAPACITY_BLOCK: "-block",
}


def bucket_name(fleet: str, store: str, account: str, region: str) -> str:
    """Return a bucket's name: unique over all of AWS, since the account's number is in it."""
    return f"{fleet}-{store}-{account}-{region}"


def stack_name(fleet: str, part: str) -> str:
    """Return the name of a stack: `lab.us-west-2`."""
    return f"{fleet}.{part}"


def tunnel_secret(fleet: str, site: str, region: str) -> str:
    """Return the name of the secret that holds the keys of a site's two tunnels to a region."""
    return f"{fleet}/tunnels/{site}/{region}"


def pool_name(group: str, rung: Rung, place: str) -> str:
    """Return a pool's name; `place` is its one zone, or its region where it spans several."""
    reservation = f"-{rung.reservation}" if rung.reservation else ""
    return f"{group}-{place}{_MARKETS[rung.market]}{reservation}"
