"""Gateways of laptops, derived from the plan and the VPN's keys: certificates, access list and machine of each."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from bedplate.errors import BedplateError, PartialError
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import LaptopGateway, laptop_gateways
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from vpn.audit_log import CertificateIndex
from vpn.certificates import Passphrase, Subject, Use
from vpn.laptops.server import Laptop
from vpn.pki import Pki, bundle_of, deployable_crl
from vpn.push import AccessList, GatewayKeys
from vpn.signing import check_bundle


def access_list_of(pki: Pki, now: datetime) -> AccessList:
    """Return the access list for all gateways; raise InputError if the revocation list cannot be deployed."""
    laptops = tuple(valid_laptops(pki.certificates, now))
    names = {laptop.name for laptop in laptops}
    revoked_names = {each.serial: pki.certificates.issued[each.serial].name for each in pki.certificates.revocations()}
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
        gateway.place: Subject(gateway.name, Use.SERVER, (gateway.public,) if gateway.public else ())
        for gateway in laptop_gateways(plan)
    }


def gateway_keys(
    plan: FleetPlan, pki: Pki, passphrase: Passphrase, now: datetime
) -> Mapping[str, GatewayKeys | BedplateError]:
    """Return certificate and keys of each gateway by place, or why they cannot be used."""
    return {gateway.place: _gateway_keys(gateway, pki, passphrase, now) for gateway in laptop_gateways(plan)}


def _gateway_keys(
    gateway: LaptopGateway, pki: Pki, passphrase: Passphrase, now: datetime
) -> GatewayKeys | BedplateError:
    try:
        bundle = bundle_of(pki, gateway.name, passphrase)
        check_bundle(f"the gateway in {gateway.place}", bundle, Subject(gateway.name, Use.SERVER), pki, now)
    except BedplateError as error:
        return PartialError(f"the keys of {gateway.name} cannot be used: {error.what}", fix=error.fix)
    return GatewayKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)


def gateway_node(plan: FleetPlan, gateway: LaptopGateway) -> NodePlan:
    """Return the machine of a gateway."""
    return next(
        node
        for node in permanent_nodes(plan)
        if NodeRole.LAPTOPS in node.duties and node.name.partition(".")[2] == gateway.place
    )
