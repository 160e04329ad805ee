"""Specimens of the network's kinds, all of them."""

from tests.support.specimens_links import LINKS
from tests.support.specimens_resolver import RESOLVER
from tests.support.specimens_routes import ROUTES
from tests.support.specimens_rules import RULES
from tests.support.specimens_transit import TRANSIT
from tests.support.specimens_vpc import VPC_PARTS

NETWORK = (*VPC_PARTS, *ROUTES, *RULES, *LINKS, *TRANSIT, *RESOLVER)
