"""The deploy script for plain pyinfra: `pyinfra roles/inventory.py roles/deploy.py`.

It configures each machine of the inventory. `--data only=monitoring` selects roles and `--data stages=install` selects
stages; without them all run. Plain pyinfra does not confirm new firewall rules: run `ssh NODE sudo bedplate-trial
confirm` within two minutes, or the node reverts them.
"""

from pathlib import Path

from pyinfra.context import host

from roles.base import deploy
from roles.catalog import machines, roles_of


def _read_list(name: str) -> list[str] | None:
    """Return a list from the node's data; a single word becomes a list of one."""
    value = host.data.get(name)
    return [value] if isinstance(value, str) else value


node = machines(Path(host.data.fleet))[host.name]
deploy(roles_of(node), only=_read_list("only"), stages=_read_list("stages"))
