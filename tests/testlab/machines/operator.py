"""What the operator of a stand does: bedplate's own command line, in a process of its own, at the desk."""

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
from tests.testlab.machines.desk import ADMIN
from tests.testlab.machines.stand import Node, Stand
from vpn.push import LAY, shipment_text
from vpn.sites.gateway import Gateway

ROOT = Path(__file__).parents[3]


class Operator:
    """Somebody who has a fleet file, a desk, and the key of a fresh machine's admin."""

    def __init__(self, stand: Stand, fleet: Path) -> None:
        self._stand = stand
        self._way = ("--fleet", str(fleet), "--ssh-config", str(stand.ssh_config))

    def bedplate(self, *words: str) -> CompletedProcess[str]:
        """Run a command as it is, from the project's folder."""
        return self._stand.desk.run("env", "--chdir", str(ROOT), sys.executable, "-m", "bedplate", *words)

    def apply(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node apply`, as a fresh machine's admin."""
        return self.bedplate("node", "apply", *words, "--user", ADMIN, *self._way)

    def changes(self, *words: str) -> dict[str, list[str]]:
        """Return what an apply changed, or would change, on each machine; it goes well on all."""
        done = self.apply(*words, "--json")
        assert done.returncode in {0, 3}, done.stdout + done.stderr
        return {name: told["changed"] for name, told in json.loads(done.stdout)["nodes"].items()}

    def audit(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node audit`."""
        return self.bedplate("node", "audit", *words, *self._way)

    def findings(self, *words: str) -> dict[str, Any]:
        """Return the document of an audit."""
        done = self.audit(*words, "--json")
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


# As whoever runs pyinfra does by hand, where administrators' keys are on trial.
_CONFIRMS = f"[ ! -x {SCRIPT} ] || {SCRIPT} confirm"


def deployed(stand: Stand, name: str, *roles: Role) -> list[str]:
    """Carry out roles on a machine; return the names of the operations that changed something. Raises CommandError.

    Administrators have the operator's key: no other opens the account by which this goes.
    """
    wanted = stand.folder / f"{name}.roles"
    copyreg.pickle(MappingProxyType, lambda table: (frozen, (dict(table),)))
    wanted.write_bytes(pickle.dumps([_let_in(role, stand.public) for role in roles]))
    at = ("ip", "netns", "exec", stand.desk.host.namespace)
    program = (sys.executable, "-m", "tests.testlab.machines.operator", str(stand.ssh_config), name, str(wanted))
    changed: list[str] = json.loads(call(*at, *program, seconds=300).splitlines()[-1])
    call(*at, "ssh", "-F", str(stand.ssh_config), name, f"sudo sh -c '{_CONFIRMS}'")
    return changed


def _let_in(role: Role, key: str) -> Role:
    """Return a role whose administrators have a key beside their own."""
    if not isinstance(role, People):
        return role
    people = (
        replace(each, keys=(*each.keys, key)) if each.admin and key not in each.keys else each
        for each in role.accounts.people
    )
    return replace(role, accounts=replace(role.accounts, people=tuple(people)))


def frozen(table: dict[str, object]) -> MappingProxyType[str, object]:
    """Return a table of a plan as it was."""
    return MappingProxyType(table)


def main() -> None:
    """Do it, on the machine that the arguments name."""
    config, name, wanted = sys.argv[1:]
    roles: tuple[Role, ...] = pickle.loads(Path(wanted).read_bytes())  # noqa: S301  our own, of a moment ago
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
    done = [(state.get_op_meta(key).names, state.get_op_data_for_host(host, key)) for key in host.op_hash_order]
    print(json.dumps([next(iter(names)) for names, data in done if data.operation_meta.did_change()]))  # noqa: T201


if __name__ == "__main__":
    main()


def laid(node: Node, gateway: Gateway) -> dict[str, list[str]]:
    """Bring a gateway all its tunnels; return what its keeper wrote, removed and told."""
    way = ("ssh", "-F", str(node.ssh_config), "-l", ADMIN, node.name, LAY)
    done = node.desk.run(*way, told=shipment_text(gateway))
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told
