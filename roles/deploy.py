"""What pyinfra runs for each node: `pyinfra roles/inventory.py roles/deploy.py`.

The node's plan is its `node` data; `stages` and `only` name the stages and the roles that are wanted, all where they
are left out.
"""

from pyinfra.context import host

from bedplate.plan.node import NodePlan
from roles.catalog import roles_of
from roles.stages import deploy

node: NodePlan = host.data.node
deploy(roles_of(node), only=host.data.get("only"), stages=host.data.get("stages"))
