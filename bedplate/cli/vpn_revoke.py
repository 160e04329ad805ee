"""`bedplate vpn revoke`: a laptop that was lost opens nothing any more, and is cut off where it is connected."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, User, keys_of, known_passphrase, now, users_of
from bedplate.errors import BedplateError, InputError, PartError


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
    from bedplate.report.vpn import revoked_lines
    from vpn.revocation import Reason
    from vpn.signing import revoke as sign
    from vpn.subject import laptop, user_of

    name = users_of(fleet).fleet
    pki = keys_of(name, fleet)
    mine = {each.name for each in pki.roll.issued.values() if user_of(each.name) == user}
    names = mine if device is None else mine & {laptop(user, device).name}
    if not names:
        raise InputError(
            f"no certificate was ever issued to {user}", fix="`bedplate vpn list` names all that there are"
        )
    gone = sign(pki, names, Reason.LOST, now(), known_passphrase(passphrase_file))
    show(revoked_lines(gone))
    try:
        _update(fleet, name, ssh_config, names)
    except PartError:
        raise
    except BedplateError as error:
        raise PartError(
            f"revoked, but no gateway was updated: {error.what}",
            where=error.where or str(fleet),
            fix="; ".join(filter(None, (error.fix, "then `bedplate vpn sync`: until then gateways let them in"))),
        ) from None
    return 0


def _update(fleet: Path, name: str, ssh_config: Path | None, names: set[str]) -> None:
    """Send every gateway the new list; PartError names those that were not reached."""
    from bedplate.cli.opening import opened, planned
    from bedplate.cli.vpn_gateways import tell_gateways

    tell_gateways(planned(opened(fleet)), keys_of(name, fleet), ssh_config, cut=names)
