"""`bedplate vpn revoke`: a laptop that was lost opens nothing any more, and is cut off where it is connected."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, User, keys_of, known_passphrase, now, users_of
from bedplate.errors import BedplateError, InputError, PartError

if TYPE_CHECKING:
    from vpn.pki import Pki


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
    _tell(fleet, keys_of(name, fleet), ssh_config, names)
    return 0


def _tell(fleet: Path, pki: "Pki", ssh_config: Path | None, names: set[str]) -> None:
    """Tell the gateways; PartError where the fleet file does not say which there are."""
    from bedplate.cli.opening import opened, planned
    from bedplate.cli.vpn_gateways import tell_gateways

    try:
        plan = planned(opened(fleet))
    except BedplateError as error:
        raise PartError(
            f"revoked, and no gateway was told, for the fleet file cannot be used: {error.what}",
            where=error.where or str(fleet),
            fix="mend it (`bedplate check`), then `bedplate vpn sync`: until then they are let in",
        ) from None
    tell_gateways(plan, pki, ssh_config, cut=names)
