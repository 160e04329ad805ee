"""`bedplate vpn timer`: a sync each day, by systemd, on the machine that signs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, users_of

OWN_UNITS = Path("~/.config/systemd/user")


def timer(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    write: Annotated[
        Path, typer.Option("--write", metavar="FOLDER", help="The folder of your own units of systemd.")
    ] = OWN_UNITS,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Write a timer that syncs each day."""
    from bedplate.writer import told_plainly, write_together
    from vpn.laptops.renewal import renewal_units

    name = users_of(fleet).fleet
    files = {"--ssh-config": ssh_config, "--passphrase-file": passphrase_file}
    options = [word for option, file in files.items() if file for word in (option, str(file.absolute()))]
    sync = (sys.executable, "-m", "bedplate", "vpn", "sync", str(fleet.absolute()), *options)
    folder = write.expanduser()
    units = renewal_units(name, sync, Path(__file__).parents[2])
    with told_plainly(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_together({folder / unit: text.encode() for unit, text in units.items()})
    show([f"written to {folder}: {', '.join(units)}", f"next: systemctl --user enable --now {list(units)[-1]}"])
    return 0
