"""The operator of a node lab: runs bedplate on the workstation, applies single roles, and pushes tunnels."""

import copyreg
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from types import MappingProxyType
from typing import Any

from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.base import Role, deploy
from roles.people.role import SCRIPT, People
from tests.testlab.machines.container import call
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.workstation import ADMIN
from vpn.push import APPLY_COMMAND, config_bundle_text
from vpn.sites.gateway import Gateway

ROOT = Path(__file__).parents[3]


class Operator:
    """Runs bedplate commands with a fleet file, and with the key of the nodes' first account."""

    def __init__(self, node_lab: NodeLab, fleet: Path) -> None:
        self._node_lab = node_lab
        self._options = ("--fleet", str(fleet), "--ssh-config", str(node_lab.ssh_config))

    def bedplate(self, *words: str) -> CompletedProcess[str]:
        """Run a bedplate command from the project's folder."""
        return self._node_lab.workstation.run("env", "--chdir", str(ROOT), sys.executable, "-m", "bedplate", *words)

    def apply(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node apply` as the first account."""
        return self.bedplate("node", "apply", *words, "--user", ADMIN, *self._options)

    def changes(self, *words: str) -> dict[str, list[str]]:
        """Apply, or check with `--check`; return the changes of each node. The apply must succeed."""
        done = self.apply(*words, "--json")
        assert done.returncode in {0, 3}, done.stdout + done.stderr
        return {name: result["changed"] for name, result in json.loads(done.stdout)["nodes"].items()}

    def audit(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node audit`."""
        return self.bedplate("node", "audit", *words, *self._options)

    def findings(self, *words: str) -> dict[str, Any]:
        """Run an audit, and return its JSON document."""
        done = self.audit(*words, "--json")
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


# Confirms new administrator keys, as an operator who uses plain pyinfra does.
_CONFIRM = f"[ ! -x {SCRIPT} ] || {SCRIPT} confirm"


def apply_roles(node_lab: NodeLab, name: str, *roles: Role) -> list[str]:
    """Apply roles to a node with pyinfra; return the names of the operations with changes. Raises CommandError.

    Administrators also get the operator's key, which the connection needs.
    """
    roles_file = node_lab.folder / f"{name}.roles"
    copyreg.pickle(MappingProxyType, lambda table: (frozen, (dict(table),)))
    roles_file.write_bytes(pickle.dumps([_with_key(role, node_lab.public) for role in roles]))
    in_namespace = ("ip", "netns", "exec", node_lab.workstation.host.namespace)
    program = (sys.executable, "-m", "tests.testlab.machines.operator", str(node_lab.ssh_config), name, str(roles_file))
    changed: list[str] = json.loads(call(*in_namespace, *program, seconds=300).splitlines()[-1])
    call(*in_namespace, "ssh", "-F", str(node_lab.ssh_config), name, f"sudo sh -c '{_CONFIRM}'")
    return changed


def _with_key(role: Role, key: str) -> Role:
    """Return a role whose administrators have an additional key."""
    if not isinstance(role, People):
        return role
    people = (
        replace(person, keys=(*person.keys, key)) if person.admin and key not in person.keys else person
        for person in role.accounts.people
    )
    return replace(role, accounts=replace(role.accounts, people=tuple(people)))


def frozen(table: dict[str, object]) -> MappingProxyType[str, object]:
    """Return a read-only mapping, which pickle cannot restore by itself."""
    return MappingProxyType(table)


def main() -> None:
    """Apply the pickled roles to the node that the arguments name."""
    config, name, roles_file = sys.argv[1:]
    roles: tuple[Role, ...] = pickle.loads(Path(roles_file).read_bytes())  # noqa: S301  written by apply_roles
    inventory = Inventory(([(name, {"ssh_config_file": config})], {}))  # type: ignore[no-untyped-call]
    state = State(inventory, Config(SUDO=True))  # type: ignore[no-untyped-call]
    with ctx_state.use(state), ctx_config.use(state.config):
        state.set_stage(StateStage.Connect)
        connect_all(state)
        host = inventory.get_host(name)
        state.set_stage(StateStage.Prepare)
        with ctx_host.use(host):
            deploy(roles)
        state.set_stage(StateStage.Execute)
        run_ops(state)
    if state.failed_hosts:
        sys.exit("an operation failed")
    operations = [(state.get_op_meta(key).names, state.get_op_data_for_host(host, key)) for key in host.op_hash_order]
    print(json.dumps([next(iter(names)) for names, data in operations if data.operation_meta.did_change()]))  # noqa: T201


if __name__ == "__main__":
    main()


def push_tunnels(node: Node, gateway: Gateway) -> dict[str, list[str]]:
    """Push all tunnels to a gateway; return what its agent wrote, removed and reported."""
    ssh = ("ssh", "-F", str(node.ssh_config), "-l", ADMIN, node.name, *APPLY_COMMAND)
    done = node.workstation.run(*ssh, stdin=config_bundle_text(gateway))
    assert done.returncode == 0, done.stderr
    report: dict[str, list[str]] = json.loads(done.stdout)
    return report
