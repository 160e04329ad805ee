"""Certificates by which gateways of the fleet know each other at tunnels: whose, what is due, and what is handed out.

They are the authority's, of a use of their own: no laptop and no server of laptops proves itself by one.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from bedplate.errors import BedplateError
from bedplate.plan import FleetPlan
from bedplate.plan.joint import pairs
from bedplate.spec.vpn import TunnelAuth
from vpn.certificate import certificate_text
from vpn.due import Due, due
from vpn.lists import deployable_lists, root_texts
from vpn.passphrase import Passphrase
from vpn.pki import Pki, bundle_of
from vpn.roll import Roll
from vpn.serving import check_serves
from vpn.sites.identity import identity_of
from vpn.sites.proof import Papers
from vpn.subject import Subject, Use


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
