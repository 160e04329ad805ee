"""What pyinfra runs for each node: `pyinfra roles/inventory.py roles/deploy.py`.

The node is the machine of its name in the fleet file that its data name; `stages` and `only` name the stages and the
roles that are wanted, all where they are left out.
"""

from pathlib import Path

from pyinfra.context import host

from roles.catalog import roles_of
from roles.fleet_file import machines
from roles.stages import deploy

node = machines(Path(host.data.fleet))[host.name]
deploy(roles_of(node), only=host.data.get("only"), stages=host.data.get("stages"))
