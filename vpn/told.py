"""What the keys and the plan together make of a fleet's gateways: what each is to be told, and how it is reached."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from bedplate.errors import BedplateError, PartError
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import LaptopGateway, laptop_gateways
from bedplate.plan.node import Duty, NodePlan
from bedplate.plan.nodes import standing_nodes
from vpn.laptops.carry import Book, GatewayKeys
from vpn.laptops.server import Laptop
from vpn.lists import deployable_lists
from vpn.passphrase import Passphrase
from vpn.pki import Pki, bundle_of
from vpn.roll import Roll
from vpn.serving import check_serves
from vpn.subject import Subject, Use


def book_of(pki: Pki, now: datetime) -> Book:
    """Return whom gateways let in from now on; InputError where the list there is may not be deployed."""
    laptops = tuple(laptops_of(pki.roll, now))
    names = {each.name for each in laptops}
    revoked = {serial: name for serial, name in _revoked(pki.roll) if name in names}
    return Book(deployable_lists(pki, now), laptops, revoked=revoked, version=len(pki.journal.lines))


def laptops_of(roll: Roll, now: datetime) -> Iterator[Laptop]:
    """Yield every laptop that has a valid certificate, once."""
    valid = {each.name for each in roll.valid(now)}
    for name, held in roll.holders().items():
        if name in valid and held.use is Use.CLIENT and held.slot is not None:
            yield Laptop(name, held.slot)


def _revoked(roll: Roll) -> Iterator[tuple[int, str]]:
    return ((each.serial, roll.issued[each.serial].name) for each in roll.revocations())


def gateways_of(plan: FleetPlan) -> tuple[Subject, ...]:
    """Return whom the certificates of the fleet's gateways name."""
    found = laptop_gateways(plan)
    return tuple(Subject(each.name, Use.SERVER, (each.public,) if each.public else ()) for each in found)


def keys_of_gateways(
    plan: FleetPlan, pki: Pki, passphrase: Passphrase, now: datetime
) -> Mapping[str, GatewayKeys | BedplateError]:
    """Return what each gateway proves itself by, by place; or why it has nothing that laptops would take."""
    return {each.place: _keys_of(each, pki, passphrase, now) for each in laptop_gateways(plan)}


def _keys_of(gateway: LaptopGateway, pki: Pki, passphrase: Passphrase, now: datetime) -> GatewayKeys | BedplateError:
    try:
        bundle = bundle_of(pki, gateway.name, passphrase)
        check_serves(f"the gateway in {gateway.place}", bundle, Subject(gateway.name, Use.SERVER), pki, now)
    except BedplateError as error:
        return PartError(f"what is kept as {gateway.name} cannot be sent: {error.what}", fix=error.fix)
    return GatewayKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)


def node_of_gateway(plan: FleetPlan, gateway: LaptopGateway) -> NodePlan:
    """Return the machine that is a gateway."""
    return next(
        node
        for node in standing_nodes(plan)
        if Duty.LAPTOPS in node.duties and node.name.partition(".")[2] == gateway.place
    )
