"""The command `vpn up`: from deployed stacks to running gateways of laptops, by the steps of the other commands.

A step that is done is skipped, and an apply or a sync without a difference changes nothing: after a failure, the same
command continues.
"""

from pathlib import Path

from bedplate.cli.fleet import plan_of
from bedplate.cli.login import SshOptions
from bedplate.cli.node_apply import INTERRUPTED, apply_machines
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Identity, PassphraseFile, SshConfig, User, notify, show
from bedplate.cli.trust import trust
from bedplate.cli.vpn import check_gateways, init, record_addresses
from bedplate.cli.vpn_session import keys_of
from bedplate.cli.vpn_sync import sync
from bedplate.errors import BedplateError
from bedplate.lock import check_plan_recorded
from bedplate.nodes.apply import exit_status
from bedplate.nodes.ssh import NodeLocation
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import Transport, laptop_gateways
from bedplate.plan.links import tunnel_pairs
from bedplate.plan.nodes import NodePlan
from bedplate.report.diagnostics import error_lines
from bedplate.report.nodes import apply_lines
from vpn.gateways import gateway_node
from vpn.pki import NoAuthority


def up(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Set up the gateways of laptops.

    Records addresses, creates the certificate authority, records host keys, applies all roles to the gateways, and
    sends them certificates. Skips what is done. The exit status is 6 if a gateway failed; the same command continues.
    """
    plan = plan_of(fleet)
    check_gateways(plan)
    check_plan_recorded(plan, fleet)
    _record_addresses(fleet, plan)
    _create_authority(fleet, plan, passphrase_file)
    if ssh_config is None:
        _trust(fleet, plan)
    # Read again: the steps above have changed the lock.
    plan = plan_of(fleet)
    nodes = _nodes(plan)
    show([f"apply roles: {', '.join(node.name for node in nodes)}"])
    done = apply_machines(plan, tuple(map(NodeLocation, nodes)), SshOptions(fleet, user, identity, ssh_config))
    show(apply_lines(done.outcomes, check=False))
    if done.interrupted:
        return INTERRUPTED
    if not any(outcome.is_done for outcome in done.outcomes):
        return exit_status(done.outcomes, check=False)
    show(["send certificates and access lists"])
    sync(fleet, ssh_config=ssh_config, passphrase_file=passphrase_file)
    if status := exit_status(done.outcomes, check=False):
        return status
    if plan.tunnels or tunnel_pairs(plan):
        show(["next: `bedplate vpn tunnels` for the tunnels of sites and regions"])
    show(["next: `bedplate person invite NAME --apply` for each person"])
    return 0


def _nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    return tuple(gateway_node(plan, gateway) for gateway in laptop_gateways(plan))


def _record_addresses(fleet: Path, plan: FleetPlan) -> None:
    if all(gateway.public and gateway.name_servers(Transport.UDP) for gateway in laptop_gateways(plan)):
        show(["addresses: recorded"])
        return
    show(["record addresses"])
    record_addresses(fleet)


def _create_authority(fleet: Path, plan: FleetPlan, passphrase_file: Path | None) -> None:
    """Create a missing authority; its keys are encrypted if there is a file with a passphrase."""
    try:
        keys_of(plan.name, fleet)
    except NoAuthority:
        show(["create the certificate authority"])
        init(fleet, locked=passphrase_file is not None, passphrase_file=passphrase_file)
    else:
        show(["certificate authority: exists"])


def _trust(fleet: Path, plan: FleetPlan) -> None:
    """Record the host keys of the gateways. An error is shown; the apply reports that gateway as well."""
    untrusted = [node.name for node in _nodes(plan) if not plan.record.host_keys.get(node.name)]
    if not untrusted:
        show(["host keys: recorded"])
    for name in untrusted:
        show([f"record the host key of {name}"])
        try:
            trust(name, fleet=fleet)
        except BedplateError as error:
            notify(error_lines(error))
