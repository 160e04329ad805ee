"""An inventory that plain pyinfra reads: the machines of the fleet file that BEDPLATE_FLEET names, or of fleet.yaml.

They go by the names of the plan: `bedplate node ssh-config --write` tells ssh where each is, and by which key it is
known.
"""

import os
from pathlib import Path

from roles.fleet_file import machines

_file = Path(os.environ.get("BEDPLATE_FLEET", "fleet.yaml"))
nodes = [
    (name, {"fleet": str(_file), "ssh_strict_host_key_checking": "yes", "_sudo": True}) for name in machines(_file)
]
