"""The VPN of laptops is set up: the certificate authority, recorded addresses, and `vpn up`, which orders all steps.

A step that is done is skipped, and an apply or a sync without a difference changes nothing: after a failure, the same
command continues.
"""

import sys
from pathlib import Path

from bedplate.account.vpn import read_laptop_endpoints
from bedplate.errors import BedplateError, InputError, error_lines
from bedplate.files import os_errors_as_machine_errors, write_together
from bedplate.lock import check_plan_recorded, lock_path, record_endpoints
from bedplate.nodes.apply import exit_status
from bedplate.nodes.ssh import NodeLocation
from bedplate.operate import Operator, open_account, plan_of
from bedplate.operate.apply import INTERRUPTED, apply_machines
from bedplate.operate.bundle import push
from bedplate.operate.gateways import sync
from bedplate.operate.keys import FOLDER, keys_of, known_passphrase, new_passphrase, now, store_of, users_of
from bedplate.operate.login import require_user
from bedplate.operate.people import check_gateways
from bedplate.operate.trust import trust_instance
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import Transport, laptop_gateways, resolver_regions
from bedplate.plan.links import tunnel_pairs
from bedplate.plan.nodes import NodePlan
from bedplate.report.nodes import apply_lines
from bedplate.report.vpn import address_lines, authority_lines
from vpn.audit_log import Begun
from vpn.certificates import Issuer
from vpn.gateways import gateway_node
from vpn.laptops.server import renewal_units
from vpn.pki import (
    FIRST_ROOT_CRL,
    NoAuthority,
    PkiFolder,
    create_authority,
    folder_of,
    read_root,
    root_crl_replacing,
    write_new_root,
)
from vpn.status import storage_warnings


def init(  # noqa: PLR0913  each is an option of the command line
    operator: Operator,
    keys: str = FOLDER,
    root: Path | None = None,
    replaces: Path | None = None,
    *,
    is_first: bool = False,
    is_locked: bool = False,
) -> None:
    """Create the certificate authority, below the key of a separate root if there is one.

    `replaces` is the certificate of the root's previous authority; `is_first` states that it has none. With `is_locked`
    private keys are encrypted by a passphrase.
    """
    plan = plan_of(operator)
    folder = folder_of(operator.fleet)
    folder.check_unused()
    if replaces and not (root and root.exists()):
        what = "--replaces requires the root that signed the previous authority"
        raise InputError(what, where="--root", fix="pass its key: --root FILE")
    if root and root.exists() and bool(replaces) == is_first:
        what = f"{root.name} exists: the authority that it has signed would not be revoked"
        fix = "pass that one's file, --replaces RENAMED/authority.crt, or --first if it has signed none"
        raise InputError(what, where="--root", fix=fix)
    passphrase = new_passphrase(operator) if is_locked else None
    issuer = _root(operator, root, plan.name, folder, passphrase) if root else None
    moment = now()
    root_list = root_crl_replacing(replaces, issuer, moment) if replaces and issuer else FIRST_ROOT_CRL
    begun = Begun(moment, plan.name, authority="", keys=keys, root="", tls_crypt="")
    create_authority(folder, begun, store_of(keys, operator), passphrase=passphrase, root=issuer, root_list=root_list)
    pki = keys_of(plan.name, operator)
    operator.show(authority_lines(pki, root))
    operator.notify(storage_warnings(pki))


def _root(operator: Operator, file: Path, fleet: str, folder: PkiFolder, new: bytes | None) -> Issuer:
    """Return the root whose key the file holds. A new file gets a new root, encrypted by the passphrase `new`."""
    if file.exists():
        return read_root(file, now(), known_passphrase(operator))
    return write_new_root(file, fleet, folder, now(), new)


def record_addresses(operator: Operator) -> None:
    """Record the public addresses of gateways, and those of DNS resolvers, from AWS."""
    plan = plan_of(operator)
    regions = [pool.place for pool in plan.laptops if pool.place in plan.regions_by_name]
    endpoints = read_laptop_endpoints(open_account(plan), plan.name, regions, resolver_regions(plan))
    recorded = record_endpoints(lock_path(operator.fleet), plan.name, endpoints.gateways, endpoints.resolvers)
    operator.show(address_lines(plan.record, recorded))


def set_up(operator: Operator) -> int:
    """Set up the gateways of laptops; return the exit status, 6 if a gateway failed."""
    plan = plan_of(operator)
    check_gateways(plan)
    check_plan_recorded(plan, operator.fleet)
    _record_addresses(operator, plan)
    _create_authority(operator, plan)
    if operator.ssh_config is None:
        require_user(operator, plan, is_admin=True)
        _trust(operator, plan)
    # Read again: the steps above have changed the lock.
    plan = plan_of(operator)
    stored = _store_plans(operator, plan)
    nodes = _nodes(plan)
    operator.show([f"apply roles: {', '.join(node.name for node in nodes)}"])
    done = apply_machines(operator, plan, tuple(map(NodeLocation, nodes)))
    operator.show(apply_lines(done.outcomes, check=False))
    if done.interrupted:
        return INTERRUPTED
    if not any(outcome.is_done for outcome in done.outcomes):
        return exit_status(done.outcomes, check=False)
    operator.show(["send certificates and access lists"])
    sync(operator)
    if status := exit_status(done.outcomes, check=False) or stored:
        return status
    if plan.tunnels or tunnel_pairs(plan):
        operator.show(["next: `bedplate vpn tunnels` for the tunnels of sites and regions"])
    operator.show(["next: `bedplate person invite NAME --apply` for each person"])
    return 0


def _nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    return tuple(gateway_node(plan, gateway) for gateway in laptop_gateways(plan))


def _record_addresses(operator: Operator, plan: FleetPlan) -> None:
    if all(gateway.public and gateway.name_servers(Transport.UDP) for gateway in laptop_gateways(plan)):
        operator.show(["addresses: recorded"])
        return
    operator.show(["record addresses"])
    record_addresses(operator)


def _create_authority(operator: Operator, plan: FleetPlan) -> None:
    """Create a missing authority; its keys are encrypted if there is a file with a passphrase."""
    try:
        keys_of(plan.name, operator)
    except NoAuthority:
        operator.show(["create the certificate authority"])
        init(operator, is_locked=operator.passphrase_file is not None)
    else:
        operator.show(["certificate authority: exists"])


def _store_plans(operator: Operator, plan: FleetPlan) -> int:
    """Store the plans from which gateways in the cloud configure themselves; return the exit status."""
    if operator.ssh_config or not any(gateway.place in plan.regions_by_name for gateway in laptop_gateways(plan)):
        return 0
    try:
        return push(operator, ())
    except BedplateError as error:
        operator.notify(error_lines(error))
        return error.exit_code


def _trust(operator: Operator, plan: FleetPlan) -> None:
    """Record the host keys of the gateways. An error is shown; the apply reports that gateway as well."""
    untrusted = [node for node in _nodes(plan) if not plan.record.host_keys.get(node.name)]
    if not untrusted:
        operator.show(["host keys: recorded"])
    for node in untrusted:
        operator.show([f"record the host key of {node.name}"])
        try:
            # Read again: it has the key of the gateway before.
            trust_instance(operator, plan_of(operator), node)
        except BedplateError as error:
            operator.notify(error_lines(error))


def write_timer(operator: Operator, folder: Path) -> None:
    """Write a systemd timer for daily syncs, which uses the operator's files."""
    files = {"--ssh-config": operator.ssh_config, "--passphrase-file": operator.passphrase_file}
    options = [word for option, file in files.items() if file for word in (option, str(file.absolute()))]
    command = (sys.executable, "-m", "bedplate", "vpn", "sync", str(operator.fleet.absolute()), *options)
    units = renewal_units(users_of(operator).fleet, command, Path(__file__).parents[2])
    with os_errors_as_machine_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    operator.show([f"wrote {', '.join(units)} to {folder}", f"next: systemctl --user enable --now {list(units)[-1]}"])
