"""`bedplate vpn revoke`: a laptop that was lost opens nothing any more, and is cut off where it is connected."""

from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, User, keys_of, known_passphrase, now
from bedplate.errors import InputError


def revoke(
    user: User,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="This machine alone; else all of theirs.")
    ] = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Take back a person's certificates, everywhere."""
    from bedplate.cli.opening import opened, planned
    from bedplate.cli.vpn_gateways import tell_gateways
    from bedplate.report.vpn import revoked_lines
    from vpn.revocation import Reason
    from vpn.signing import revoke as sign
    from vpn.subject import laptop, user_of

    plan = planned(opened(fleet))
    pki = keys_of(plan.name, fleet)
    mine = {each.name for each in pki.roll.issued.values() if user_of(each.name) == user}
    names = mine if device is None else mine & {laptop(user, device).name}
    if not names:
        raise InputError(
            f"no certificate was ever issued to {user}", fix="`bedplate vpn list` names all that there are"
        )
    gone = sign(pki, names, Reason.LOST, now(), known_passphrase(passphrase_file))
    show(revoked_lines(gone))
    tell_gateways(plan, keys_of(plan.name, fleet), ssh_config, cut=names)
    return 0
