"""`bedplate vpn sync`: the VPN's keys beside the fleet file: who left is revoked, gateways are told."""

from functools import cache
from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, keys_of, known_passphrase, now

if TYPE_CHECKING:
    from vpn.due import Due
    from vpn.passphrase import Passphrase
    from vpn.pki import Pki


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Bring keys and gateways up to the fleet file."""
    from bedplate.cli.opening import opened, planned
    from bedplate.cli.vpn_gateways import tell_gateways
    from vpn.due import due
    from vpn.told import gateways_of, keys_of_gateways

    loaded = opened(fleet)
    plan = planned(loaded)
    pki = keys_of(plan.name, fleet)
    gateways = gateways_of(plan)
    keyless = {gateway.name for gateway in gateways if pki.store.read(gateway.name) is None}
    wanted = due(pki.roll, loaded.fleet.people, gateways, keyless, now())
    passphrase = cache(known_passphrase(passphrase_file))
    _signed(pki, wanted, passphrase)
    signed = keys_of(plan.name, fleet)
    tell_gateways(
        plan, signed, ssh_config, cut=wanted.left, keys=lambda pki: keys_of_gateways(plan, pki, passphrase, now())
    )
    return 0


def _signed(pki: "Pki", wanted: "Due", passphrase: "Passphrase") -> None:
    """Sign what is due, and say it; a list past the half of its life too."""
    from bedplate.report.vpn import issued_lines, relisted_lines, revoked_lines
    from vpn.revocation import Reason
    from vpn.signing import issue_anew, relist, revoke

    for names, reason in ((wanted.left, Reason.LEFT), (wanted.gone, Reason.REPLACED)):
        if names:
            show(revoked_lines(revoke(pki, names, reason, now(), passphrase)))
    if wanted.lacking:
        show(issued_lines(issue_anew(pki, wanted.lacking, now(), passphrase), now()))
    show(relisted_lines(signed=relist(pki, now(), passphrase)))
