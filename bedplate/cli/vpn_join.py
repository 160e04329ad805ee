"""`bedplate vpn join`: the journal of another clone, which was signed apart from this one's, taken into it."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_opening import PassphraseFile, keys_of, known_passphrase, now, users_of
from bedplate.writer import told_plainly

Other = Annotated[Path, typer.Argument(metavar="JOURNAL", help="The other journal, as it was committed there.")]


def join(journal: Other, fleet: FleetFile = DEFAULT_FLEET, *, passphrase_file: PassphraseFile = None) -> int:
    """Take in what somebody else has signed apart."""
    from bedplate.report.vpn import joined_lines
    from vpn.joining import join as sign
    from vpn.joining import read_other

    pki = keys_of(users_of(fleet).fleet, fleet)
    with told_plainly(journal, "read"):
        text = journal.read_text(encoding="utf-8", errors="replace")
    show(joined_lines(sign(pki, read_other(text, pki), now(), known_passphrase(passphrase_file))))
    return 0
