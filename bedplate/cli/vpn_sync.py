"""`bedplate vpn sync`: the VPN's keys beside the fleet file: who left is revoked, gateways are told."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig
from bedplate.cli.vpn_opening import PassphraseFile, keys_of, known_passphrase, now
from bedplate.errors import BedplateError, InputError, PartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bedplate.plan import FleetPlan
    from vpn.due import Due
    from vpn.passphrase import Passphrase
    from vpn.pki import Pki


def sync(
    fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, passphrase_file: PassphraseFile = None
) -> int:
    """Bring keys and gateways up to the fleet file."""
    from bedplate.cli.opening import opened, planned
    from vpn.due import due
    from vpn.peers import peer_subjects
    from vpn.told import gateways_of

    loaded = opened(fleet)
    plan = planned(loaded)
    pki = keys_of(plan.name, fleet)
    gateways = (*gateways_of(plan), *peer_subjects(plan).values())
    keyless = {gateway.name for gateway in gateways if pki.store.read(gateway.name) is None}
    wanted = due(pki.roll, loaded.fleet.people, gateways, keyless, now())
    passphrase = cache(known_passphrase(passphrase_file))
    _signed(pki, wanted, passphrase)
    signed = keys_of(plan.name, fleet)
    try:
        _each(
            lambda: _tell(plan, signed, ssh_config, wanted.left, passphrase),
            lambda: _bring(plan, fleet, ssh_config, passphrase),
        )
    except InputError as error:
        if signed.journal == pki.journal:
            raise
        what = f"signed, but not every gateway was updated: {error.what}"
        raise PartError(what, where=error.where, fix=error.fix) from None
    return 0


def _tell(
    plan: "FleetPlan", signed: "Pki", config: Path | None, cut: "Iterable[str]", passphrase: "Passphrase"
) -> None:
    """Send gateways of laptops their keys, and whom they let in."""
    from bedplate.cli.vpn_gateways import tell_gateways
    from vpn.told import keys_of_gateways

    tell_gateways(plan, signed, config, cut=cut, keys=lambda pki: keys_of_gateways(plan, pki, passphrase, now()))


def _bring(plan: "FleetPlan", fleet: Path, config: Path | None, passphrase: "Passphrase") -> None:
    """Send new certificates and the list of revoked ones to the gateways that identify each other by certificates."""
    from bedplate.cli.vpn_ends import asked_gateways, door_of
    from bedplate.cli.vpn_proofs import proofs_of
    from bedplate.cli.vpn_tunnels import bring, turn_of
    from vpn.peers import peer_subjects

    peers = peer_subjects(plan)
    if peers:
        with turn_of(fleet):
            asked = asked_gateways(plan, door_of(plan), proofs_of(plan, fleet, passphrase))
            bring(plan, {name: each for name, each in asked.items() if name.partition(".")[2] in peers}, config)


def _each(*steps: "Callable[[], None]") -> None:
    """Take every step, whatever became of those before it; raises what went wrong, PartError where that is several."""
    failures: list[BedplateError] = []
    for step in steps:
        try:
            step()
        except BedplateError as error:
            failures.append(error)
    if len(failures) > 1:
        raise PartError("; ".join(each.what for each in failures), fix=failures[0].fix)
    if failures:
        raise failures[0]


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
