"""Certificates by which gateways of the fleet know each other at tunnels: whose, what is due, and what is handed out.

They are the authority's, of a use of their own: no laptop and no server of laptops proves itself by one.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from bedplate.errors import BedplateError, InputError
from bedplate.hold import held
from bedplate.plan import FleetPlan
from bedplate.plan.links import pairs
from bedplate.spec.network import TunnelAuth
from vpn.certificates import Passphrase, Subject, Use, certificate_text, key_text, lock_of, new_key, unlocked
from vpn.journal import Roll
from vpn.pki import Pki, bundle_of, deployable_lists, opened_issuer, root_texts
from vpn.signing import Due, check_serves, due
from vpn.sites.gateway import Papers, SharedKey, identity_of


def peer_subjects(plan: FleetPlan) -> Mapping[str, Subject]:
    """Return whom certificates of tunnels name, by place; nobody where gateways have keys."""
    if plan.tunnel_auth is not TunnelAuth.CERTIFICATES:
        return {}
    places = sorted({place for pair in pairs(plan) for place in pair})
    return {place: Subject(identity_of(plan, place), Use.PEER) for place in places}


def due_peers(roll: Roll, peers: Iterable[Subject], keyless: Container[str], now: datetime) -> Due:
    """Return what has to be done for these gateways, and for those that are gone; of laptops nothing."""
    issued = {serial: each for serial, each in roll.issued.items() if each.use is Use.PEER}
    return due(replace(roll, issued=issued), (), peers, keyless, now)


def papers_of(
    pki: Pki, peers: Mapping[str, Subject], passphrase: Passphrase, now: datetime
) -> Mapping[str, Papers | BedplateError]:
    """Return what each gateway proves itself and judges others by, by place; or why it has nothing that serves.

    Raises InputError if the authority's or the root's list cannot be deployed.
    """
    authorities = tuple(certificate_text(one) for one in (pki.authority.certificate, pki.authority.root) if one)
    revoked = (deployable_lists(pki, now), *root_texts(pki, now)) if peers else ()

    def papers(place: str, peer: Subject) -> Papers | BedplateError:
        try:
            bundle = bundle_of(pki, peer.name, passphrase)
            check_serves(f"the tunnels of {place}", bundle, peer, pki, now)
        except BedplateError as error:
            return error
        return Papers(bundle.certificate, bundle.key, authorities, revoked)

    return {place: papers(place, peer) for place, peer in peers.items()}


# Two gateways, by their regions or sites.
Pair = frozenset[str]
_BYTES = 48


def kept_keys(pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase) -> Mapping[Pair, SharedKey | BedplateError]:
    """Return the key of each pair that has one, or why it serves nobody: it does not open, or is another pair's too."""
    texts = {pair: pki.store.read(name_of(pair)) for pair in pairs}
    found = {pair: _shared(pair, text, passphrase) for pair, text in texts.items() if text is not None}
    return {**found, **_alike(found)}


def make_keys(pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase, *, anew: bool = False) -> tuple[Pair, ...]:
    """Make a key for each pair that has none, or for all of them `anew`, and return whose were made.

    Raises HeldError while somebody else signs, and InputError where the authority's key is not here.
    """
    with held(pki.folder.journal):
        wanted = tuple(pair for pair in pairs if anew or pki.store.read(name_of(pair)) is None)
        if wanted:
            _, lock = opened_issuer(pki, passphrase)
            pki.store.write({name_of(pair): key_text(new_key(), lock) for pair in wanted})
        return wanted


def name_of(pair: Pair) -> str:
    """Return the name under which a pair's key is kept; it has more dots than a laptop's and begins as no gateway's."""
    return f"tunnel.{'.'.join(sorted(pair))}"


def _alike(found: Mapping[Pair, SharedKey | BedplateError]) -> Mapping[Pair, BedplateError]:
    """Return why pairs of one key have none: whoever reads it at one gateway could stand for another."""
    holders: dict[bytes, list[Pair]] = {}
    for pair, key in found.items():
        if isinstance(key, SharedKey):
            holders.setdefault(key.secret, []).append(pair)
    shared = [each for each in holders.values() if len(each) > 1]
    return {pair: _one_key(each) for each in shared for pair in each}


def _one_key(pairs: Iterable[Pair]) -> InputError:
    told = " and ".join(sorted(map(name_of, pairs)))
    return InputError(f"{told} are one key", fix="`bedplate vpn tunnels --new-keys` makes each its own")


def _shared(pair: Pair, text: str, passphrase: Passphrase) -> SharedKey | BedplateError:
    try:
        key = unlocked(text, lock_of(text, passphrase), f"the key between {' and '.join(sorted(pair))}")
    except BedplateError as error:
        return error
    return SharedKey(key.private_numbers().private_value.to_bytes(_BYTES, "big"))
