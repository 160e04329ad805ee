"""Proofs of gateways: certificates and access lists for laptops, and what two gateways with a tunnel show each other.

A tunnel has certificates of the fleet's authority, or a shared key for each pair of gateways. Certificates of tunnels
have a separate use: they are not valid for laptops or gateways of laptops.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import held
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import LaptopGatewayPlan, laptop_gateways
from bedplate.plan.links import tunnel_pairs
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from bedplate.spec.network import TunnelAuth
from vpn.audit_log import CertificateIndex
from vpn.certificates import (
    Passphrase,
    Subject,
    Use,
    certificate_text,
    gateway_subject,
    key_text,
    load_key,
    new_key,
    passphrase_for,
)
from vpn.laptops.server import Laptop
from vpn.pki import Pki, bundle_of, deployable_crl, open_issuer, root_crl_texts
from vpn.push import AccessList, GatewayKeys
from vpn.signing import SigningChanges, check_bundle, due
from vpn.sites.gateway import SharedKey, TunnelCertificate, identity_of


def access_list_of(pki: Pki, now: datetime) -> AccessList:
    """Return the access list for all gateways; raise InputError if the revocation list cannot be deployed."""
    laptops = tuple(valid_laptops(pki.certificates, now))
    names = {laptop.name for laptop in laptops}
    revoked_names = {
        revocation.serial: pki.certificates.issued[revocation.serial].name
        for revocation in pki.certificates.revocations()
    }
    revoked = {serial: name for serial, name in revoked_names.items() if name in names}
    return AccessList(deployable_crl(pki, now), laptops, revoked=revoked, version=len(pki.journal.lines))


def valid_laptops(index: CertificateIndex, now: datetime) -> Iterator[Laptop]:
    """Yield each laptop that has a valid certificate once."""
    valid = {certificate.name for certificate in index.valid(now)}
    for name, certificate in index.holders().items():
        if name in valid and certificate.use is Use.CLIENT and certificate.slot is not None:
            yield Laptop(name, certificate.slot)


def gateway_subjects(plan: FleetPlan) -> Mapping[str, Subject]:
    """Return the certificate subjects of the fleet's gateways, by place."""
    return {
        gateway.place: gateway_subject(
            gateway.place, gateway.domains[0], *((gateway.public,) if gateway.public else ())
        )
        for gateway in laptop_gateways(plan)
    }


def gateway_keys(
    plan: FleetPlan, pki: Pki, passphrase: Passphrase, now: datetime
) -> Mapping[str, GatewayKeys | BedplateError]:
    """Return certificate and keys of each gateway by place, or why they cannot be used."""
    return {gateway.place: _gateway_keys(gateway, pki, passphrase, now) for gateway in laptop_gateways(plan)}


def _gateway_keys(
    gateway: LaptopGatewayPlan, pki: Pki, passphrase: Passphrase, now: datetime
) -> GatewayKeys | BedplateError:
    try:
        bundle = bundle_of(pki, gateway.name, passphrase)
        check_bundle(f"the gateway in {gateway.place}", bundle, Subject(gateway.name, Use.SERVER), pki, now)
    except BedplateError as error:
        return PartialError(f"the keys of {gateway.name} cannot be used: {error.what}", fix=error.fix)
    return GatewayKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)


def gateway_node(plan: FleetPlan, gateway: LaptopGatewayPlan) -> NodePlan:
    """Return the machine of a gateway."""
    return next(
        node
        for node in permanent_nodes(plan)
        if NodeRole.LAPTOPS in node.roles and node.name.partition(".")[2] == gateway.place
    )


# Two gateways, by the names of their regions or sites.
Pair = frozenset[str]
_KEY_BYTES = 48


def peer_subjects(plan: FleetPlan) -> Mapping[str, Subject]:
    """Return the certificate subjects of gateways with tunnels, by place; none if tunnels have shared keys."""
    if plan.tunnel_auth is not TunnelAuth.CERTIFICATES:
        return {}
    places = sorted({place for pair in tunnel_pairs(plan) for place in pair})
    return {place: Subject(identity_of(plan, place), Use.PEER) for place in places}


def due_peers(
    index: CertificateIndex, peers: Iterable[Subject], keyless: Container[str], now: datetime
) -> SigningChanges:
    """Return which certificates of tunnels must be signed or revoked."""
    issued = {serial: certificate for serial, certificate in index.issued.items() if certificate.use is Use.PEER}
    return due(replace(index, issued=issued), (), peers, keyless, now)


def tunnel_certificates(
    pki: Pki, peers: Mapping[str, Subject], passphrase: Passphrase, now: datetime
) -> Mapping[str, TunnelCertificate | BedplateError]:
    """Return certificate, key, authorities and revocation lists of each gateway by place, or why they are unusable.

    Raise InputError if the authority's or the root's revocation list cannot be deployed.
    """
    chain = (pki.authority.certificate, pki.authority.root)
    authorities = tuple(certificate_text(certificate) for certificate in chain if certificate)
    crls = (deployable_crl(pki, now), *root_crl_texts(pki, now)) if peers else ()

    def papers(place: str, peer: Subject) -> TunnelCertificate | BedplateError:
        try:
            bundle = bundle_of(pki, peer.name, passphrase)
            check_bundle(f"the tunnels of {place}", bundle, peer, pki, now)
        except BedplateError as error:
            return error
        return TunnelCertificate(bundle.certificate, bundle.key, authorities, crls)

    return {place: papers(place, peer) for place, peer in peers.items()}


def load_shared_keys(
    pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase
) -> Mapping[Pair, SharedKey | BedplateError]:
    """Return the shared key of each pair that has one, or why it is unusable: it does not open, or is not unique."""
    texts = {pair: pki.store.read(pair_key_name(pair)) for pair in pairs}
    keys = {pair: _load_shared_key(pair, text, passphrase) for pair, text in texts.items() if text is not None}
    return {**keys, **_duplicate_errors(keys)}


def make_shared_keys(
    pki: Pki, pairs: Iterable[Pair], passphrase: Passphrase, *, anew: bool = False
) -> tuple[Pair, ...]:
    """Create a key for each pair without one, or for all pairs if `anew`, and return these pairs.

    Raise HeldError while another process signs, and InputError if the authority's key is missing.
    """
    with held(pki.folder.journal):
        new_pairs = tuple(pair for pair in pairs if anew or pki.store.read(pair_key_name(pair)) is None)
        if new_pairs:
            _, password = open_issuer(pki, passphrase)
            pki.store.write({pair_key_name(pair): key_text(new_key(), password) for pair in new_pairs})
        return new_pairs


def pair_key_name(pair: Pair) -> str:
    """Return the name of a pair's key in the key store; laptops have fewer dots, gateways another prefix."""
    return f"tunnel.{'.'.join(sorted(pair))}"


def _duplicate_errors(keys: Mapping[Pair, SharedKey | BedplateError]) -> Mapping[Pair, BedplateError]:
    """Return an error for pairs with the same key: a gateway that has it could impersonate another one."""
    pairs_by_secret: dict[bytes, list[Pair]] = {}
    for pair, key in keys.items():
        if isinstance(key, SharedKey):
            pairs_by_secret.setdefault(key.secret, []).append(pair)
    duplicates = [pairs for pairs in pairs_by_secret.values() if len(pairs) > 1]
    return {pair: _duplicate_error(pairs) for pairs in duplicates for pair in pairs}


def _duplicate_error(pairs: Iterable[Pair]) -> InputError:
    names = " and ".join(sorted(map(pair_key_name, pairs)))
    return InputError(f"{names} are the same key", fix="`bedplate vpn tunnels --new-keys` makes one for each pair")


def _load_shared_key(pair: Pair, text: str, passphrase: Passphrase) -> SharedKey | BedplateError:
    try:
        key = load_key(text, passphrase_for(text, passphrase), f"the key between {' and '.join(sorted(pair))}")
    except BedplateError as error:
        return error
    return SharedKey(key.private_numbers().private_value.to_bytes(_KEY_BYTES, "big"))
