"""What pyinfra runs for each node: `pyinfra roles/inventory.py roles/deploy.py`.

The node is the machine of its name in the fleet file that its data name. `stages` and `only` name the stages and the
roles that are wanted, one or a list, as in `--data only=monitoring`; all where they are left out. Nobody confirms a new
packet filter here: within two minutes, `ssh NODE sudo bedplate-trial confirm`.
"""

from pathlib import Path

from pyinfra.context import host

from roles.base import deploy
from roles.catalog import machines, roles_of


def _told(name: str) -> list[str] | None:
    """Return what the data of the node say under a name: one word is a list of one."""
    words = host.data.get(name)
    return [words] if isinstance(words, str) else words


node = machines(Path(host.data.fleet))[host.name]
deploy(roles_of(node), only=_told("only"), stages=_told("stages"))
