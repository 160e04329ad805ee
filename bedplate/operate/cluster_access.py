"""How workflows reach the cluster: its authorities, connections to members, the operator's kubeconfig."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bedplate.errors import InputError
from bedplate.files import held, login_name, os_errors_as_machine_errors, write_whole
from bedplate.kubernetes.authorities import (
    CLUSTER,
    Authorities,
    admin_config,
    is_usable,
    new_authorities,
    read_authorities,
    write_authorities,
)
from bedplate.kubernetes.members import Connection
from bedplate.lock import lock_path, record_authority
from bedplate.operate import Operator
from bedplate.operate.keys import FOLDER, PARAMETERS, keys_of, known_passphrase, now, store_of
from bedplate.operate.login import ssh_commands
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from vpn.pki import AUTHORITY, KeyStore, NoAuthority, Pki, folder_of, open_issuer

_PRIVATE, _PRIVATE_FOLDER = 0o600, 0o700


def cluster_of(plan: FleetPlan) -> ClusterPlan:
    """Return the plan of the cluster. Raises InputError for a fleet without one."""
    cluster = cluster_plan(plan)
    if cluster is None:
        raise InputError(f"the fleet {plan.name} has no cluster", fix="add the `kubernetes` section to the fleet file")
    return cluster


def locked(operator: Operator) -> AbstractContextManager[None]:
    """Return the lock of the commands that change the cluster. Raises HeldError while another process holds it."""
    return held(operator.fleet.with_suffix(".kubernetes"))


def make_authorities(operator: Operator, plan: FleetPlan) -> Authorities:
    """Return the cluster's authorities, made if there are none, and record what is public in the lock.

    They are encrypted by a passphrase if those of the VPN are. Raises InputError if the store lacks recorded ones.
    """
    folder = folder_of(operator.fleet)
    folder.create()
    store, passphrase = _store(operator, plan), known_passphrase(operator)
    authorities = read_authorities(store, passphrase)
    if authorities is None:
        if plan.record.authority:
            fix = "copy fleet.pki with its folder `keys` from the machine where `bedplate kube init` first ran"
            raise InputError("the key store lacks the cluster's authorities", where=str(folder.path), fix=fix)
        authorities = new_authorities(plan.name, now())
        write_authorities(store, authorities, _vpn_passphrase(operator, plan))
    record_authority(lock_path(operator.fleet), plan.name, authorities.certificate, authorities.account_key)
    return authorities


def _store(operator: Operator, plan: FleetPlan) -> KeyStore:
    """Return the store with the cluster's keys: that of the VPN, or the folder for a fleet that had no VPN then."""
    folder = store_of(FOLDER, operator)
    pki = _vpn_pki(operator, plan) if folder.read(CLUSTER) is None else None
    return store_of(PARAMETERS, operator) if pki and pki.journal.begun.keys == PARAMETERS else folder


def _vpn_pki(operator: Operator, plan: FleetPlan) -> Pki | None:
    try:
        return keys_of(plan.name, operator)
    except NoAuthority:
        return None


def _vpn_passphrase(operator: Operator, plan: FleetPlan) -> bytes | None:
    """Return the verified passphrase of the VPN's keys; None if they are not encrypted."""
    pki = _vpn_pki(operator, plan)
    return open_issuer(pki, known_passphrase(operator))[1] if pki and pki.store.read(AUTHORITY) else None


def admin_kubeconfig(operator: Operator, plan: FleetPlan) -> Path:
    """Return the operator's own kubeconfig, which is renewed here after half of its 12 hours.

    Raises InputError before `bedplate kube init`.
    """
    cluster, keys = cluster_of(plan), folder_of(operator.fleet).keys
    path = keys / "admin.kubeconfig"
    if is_usable(path, cluster, cluster.authority, now()):
        return path
    authorities = read_authorities(_store(operator, plan), known_passphrase(operator))
    if authorities is None:
        fix = "run `bedplate kube init`"
        if cluster.authority:
            fix = f"copy {keys} from the machine that ran `bedplate kube init`"
        raise InputError("the keys of the cluster's authorities are not on this machine", fix=fix)
    with os_errors_as_machine_errors(path):
        path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    write_whole(path, admin_config(cluster, authorities.cluster, login_name(), now()).encode(), _PRIVATE)
    return path


def member_nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    """Return the machines of the control plane."""
    return tuple(node for node in permanent_nodes(plan) if NodeRole.CONTROL in node.roles)


@contextmanager
def connections(operator: Operator, plan: FleetPlan, nodes: Sequence[NodePlan]) -> Iterator[dict[str, Connection]]:
    """Yield the ssh connections of machines by name."""
    with ssh_commands(operator, plan, nodes) as commands:
        yield {name: Connection(name, argv) for name, argv in commands.items()}
