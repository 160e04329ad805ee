"""Shared by the commands of `bedplate kube`: authorities, connections to members, the operator's kubeconfig."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.login import SshOptions, ssh_targets
from bedplate.cli.vpn_session import FOLDER, PARAMETERS, keys_of, known_passphrase, now, store_of
from bedplate.errors import InputError
from bedplate.files import held, login_name, os_errors_as_machine_errors, write_whole
from bedplate.kube.authorities import (
    CLUSTER,
    Authorities,
    admin_config,
    is_usable,
    new_authorities,
    read_authorities,
    write_authorities,
)
from bedplate.kube.members import Connection
from bedplate.lock import lock_path, record_authority
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from vpn.pki import AUTHORITY, KeyStore, NoAuthority, Pki, folder_of, open_issuer
from vpn.push import ssh_connection

Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NAME", help="A member that is away; replace it later. Can be repeated."),
]
_PRIVATE, _PRIVATE_FOLDER = 0o600, 0o700


def cluster_of(plan: FleetPlan) -> ClusterPlan:
    """Return the plan of the cluster. Raises InputError for a fleet without one."""
    cluster = cluster_plan(plan)
    if cluster is None:
        raise InputError(f"the fleet {plan.name} has no cluster", fix="add the `kubernetes` section to the fleet file")
    return cluster


def locked(fleet: Path) -> AbstractContextManager[None]:
    """Return the lock of the commands that change the cluster. Raises HeldError while another process holds it."""
    return held(fleet.with_suffix(".kubernetes"))


def make_authorities(fleet: Path, plan: FleetPlan, passphrase_file: Path | None) -> Authorities:
    """Return the cluster's authorities, made if there are none, and record what is public in the lock.

    They are encrypted by a passphrase if those of the VPN are. Raises InputError if the store lacks recorded ones.
    """
    folder_of(fleet).create()
    store, passphrase = _store(fleet, plan), known_passphrase(passphrase_file)
    authorities = read_authorities(store, passphrase)
    if authorities is None:
        if plan.record.authority:
            fix = "copy fleet.pki with its folder `keys` from the machine where `bedplate kube init` first ran"
            raise InputError("the key store lacks the cluster's authorities", where=str(folder_of(fleet).path), fix=fix)
        authorities = new_authorities(plan.name, now())
        write_authorities(store, authorities, _vpn_passphrase(fleet, plan, passphrase_file))
    record_authority(lock_path(fleet), plan.name, authorities.certificate, authorities.account_key)
    return authorities


def _store(fleet: Path, plan: FleetPlan) -> KeyStore:
    """Return the store with the cluster's keys: that of the VPN, or the folder for a fleet that had no VPN then."""
    folder = store_of(FOLDER, fleet)
    pki = _vpn_pki(fleet, plan) if folder.read(CLUSTER) is None else None
    return store_of(PARAMETERS, fleet) if pki and pki.journal.begun.keys == PARAMETERS else folder


def _vpn_pki(fleet: Path, plan: FleetPlan) -> Pki | None:
    try:
        return keys_of(plan.name, fleet)
    except NoAuthority:
        return None


def _vpn_passphrase(fleet: Path, plan: FleetPlan, passphrase_file: Path | None) -> bytes | None:
    """Return the verified passphrase of the VPN's keys; None if they are not encrypted."""
    pki = _vpn_pki(fleet, plan)
    return open_issuer(pki, known_passphrase(passphrase_file))[1] if pki and pki.store.read(AUTHORITY) else None


def admin_kubeconfig(fleet: Path, plan: FleetPlan, passphrase_file: Path | None = None) -> Path:
    """Return the operator's own kubeconfig, which is renewed here after half of its 12 hours.

    Raises InputError before `bedplate kube init`.
    """
    cluster, path = cluster_of(plan), folder_of(fleet).keys / "admin.kubeconfig"
    if is_usable(path, cluster, cluster.authority, now()):
        return path
    authorities = read_authorities(_store(fleet, plan), known_passphrase(passphrase_file))
    if authorities is None:
        fix = "run `bedplate kube init`"
        if cluster.authority:
            fix = f"copy {folder_of(fleet).keys} from the machine that ran `bedplate kube init`"
        raise InputError("the keys of the cluster's authorities are not on this machine", fix=fix)
    with os_errors_as_machine_errors(path):
        path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    write_whole(path, admin_config(cluster, authorities.cluster, login_name(), now()).encode(), _PRIVATE)
    return path


def member_nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    """Return the machines of the control plane."""
    return tuple(node for node in permanent_nodes(plan) if NodeRole.CONTROL in node.roles)


@contextmanager
def connections(plan: FleetPlan, nodes: Sequence[NodePlan], options: SshOptions) -> Iterator[dict[str, Connection]]:
    """Yield the ssh connections of machines by name.

    Without a recorded host key, a machine is reached by the operator's own ssh settings.
    """
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        targets = ssh_targets(Path(folder), plan, [NodeLocation(node) for node in nodes], options).targets
        commands = {target.node.name: target.argv for target in targets}
        yield {
            node.name: Connection(node.name, commands.get(node.name) or ssh_connection(node.name).argv)
            for node in nodes
        }
