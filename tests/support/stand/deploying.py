"""Roles carried out on a machine of a stand by plain pyinfra, at the desk: `python -m tests.support.stand.deploying`.

Prints, as JSON, the names of the operations that changed something. `bedplate node apply` has an engine of its own.
"""

import copyreg
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.base import Role
from roles.people.role import People
from roles.people.trial import SCRIPT
from roles.stages import deploy
from tests.support.stand.command import call
from tests.support.stand.stand import Stand

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
    program = (sys.executable, "-m", "tests.support.stand.deploying", str(stand.ssh_config), name, str(wanted))
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
