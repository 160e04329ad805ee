"""`bedplate vpn init`: the authority that a fleet's gateways and laptops hang on."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_opening import (
    FOLDER,
    PARAMETERS,
    PassphraseFile,
    keys_of,
    known_passphrase,
    new_passphrase,
    now,
    store_of,
)
from bedplate.errors import InputError

if TYPE_CHECKING:
    from vpn.certificate import Issuer
    from vpn.pki_folder import PkiFolder


class Keys(StrEnum):
    """Where private keys are kept."""

    FOLDER = FOLDER
    PARAMETERS = PARAMETERS


def init(  # noqa: PLR0913  one parameter an option
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root", metavar="FILE", help="The key of a root kept elsewhere, FILE.crt beside it; made if new."
        ),
    ] = None,
    replaces: Annotated[
        Path | None,
        typer.Option(
            "--replaces", metavar="FILE", help="authority.crt of the root's former authority, which it revokes."
        ),
    ] = None,
    keys: Annotated[Keys, typer.Option("--keys", help="Where private keys are kept.")] = Keys.FOLDER,
    locked: Annotated[bool, typer.Option("--locked", help="Lock private keys by a passphrase.")] = False,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Make the fleet's authority, once."""
    from bedplate.cli.opening import opened, planned
    from bedplate.report.vpn import begun_lines
    from vpn.entry import Begun
    from vpn.pki import FIRST_ROOT_LIST, begin
    from vpn.pki_folder import folder_of
    from vpn.root import list_replacing

    plan = planned(opened(fleet))
    folder = folder_of(fleet)
    folder.check_unused()
    if replaces and not (root and root.exists()):
        raise InputError(
            "--replaces needs the root that signed the former authority", where="--root", fix="write `--root KEY`"
        )
    lock = new_passphrase(passphrase_file) if locked else None
    top = _root(root, plan.name, folder, lock, passphrase_file)
    moment = now()
    root_list = list_replacing(replaces, top, moment) if replaces and top else FIRST_ROOT_LIST
    begun = Begun(moment, plan.name, "", keys.value)
    begin(folder, begun, store_of(keys, fleet), lock=lock, root=top, root_list=root_list)
    show(begun_lines(keys_of(plan.name, fleet), root))
    return 0


def _root(
    file: Path | None, fleet: str, folder: "PkiFolder", lock: bytes | None, passphrase: Path | None
) -> "Issuer | None":
    """Return the root whose key lies in a file, or a new one written there; None where none is named."""
    from vpn.root import read_root, write_new_root

    if file is None:
        return None
    if file.exists():
        return read_root(file, now(), known_passphrase(passphrase))
    return write_new_root(file, fleet, folder, now(), lock)
