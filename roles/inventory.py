"""An inventory that plain pyinfra reads: the machines of the fleet file that BEDPLATE_FLEET names, or of fleet.yaml.

A machine whose address nobody decides beforehand goes by its name.
"""

import os
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, read_lock
from bedplate.plan import plan_fleet
from bedplate.plan.nodes import standing_nodes

_catalog = load_catalog()
_loaded = load_fleet(Path(os.environ.get("BEDPLATE_FLEET", "fleet.yaml")), _catalog)
_plan = plan_fleet(_loaded.fleet, read_lock(lock_path(_loaded.path), _loaded.fleet.name), _catalog)
nodes = [(str(node.address or node.full_name), {"node": node}) for node in standing_nodes(_plan)]
