"""Faults of moto's transit gateways, mended while the simulation runs: who is in which table, and what is gone.

AWS puts an attachment into its gateway's default tables where the gateway says so, takes it out of all tables when it
is deleted, and tells of it as deleted for a while. Source: Amazon VPC transit gateways guide, 2026-07.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any

from moto.ec2.models.transit_gateway import TransitGatewayBackend
from moto.ec2.models.transit_gateway_attachments import TransitGatewayAttachmentBackend
from moto.ec2.models.transit_gateway_route_tables import TransitGatewayRelations, TransitGatewayRouteTableBackend
from moto.ec2.models.vpn_connections import VPNConnectionBackend

from bedplate.rehearsal.moto_transit_routes import keeping_attachments, telling_routes
from bedplate.rehearsal.replaced import wrapped

_ENABLED = "enable"


@contextmanager
def mended_transit() -> Iterator[None]:
    """Mend moto's transit gateways; put everything back as it was at the end."""
    with ExitStack() as repairs:
        for (owner, name), repair in _REPAIRS.items():
            repairs.enter_context(wrapped(owner, name, repair))
        yield


def _settling_network(create: Callable[..., Any]) -> Callable[..., Any]:
    """Let a VPC be attached again after it was, and put the attachment into its default tables."""

    def created(backend: Any, transit_gateway_id: str, vpc_id: str, **more: Any) -> object:  # noqa: ANN401
        for ident, old in list(backend.transit_gateway_attachments.items()):
            if (old.state, old.resource_id, old.transit_gateway_id) == ("deleted", vpc_id, transit_gateway_id):
                del backend.transit_gateway_attachments[ident]
        made = create(backend, transit_gateway_id=transit_gateway_id, vpc_id=vpc_id, **more)
        _clear(backend, made.id)
        return _settled(backend, made)

    return created


def _settling_tunnels(create: Callable[..., Any]) -> Callable[..., Any]:
    """Put the attachment of a VPN connection into its gateway's default tables."""

    def created(backend: Any, *given: Any, **named: Any) -> object:  # noqa: ANN401  # one of moto's mixed classes
        return _settled(backend, create(backend, *given, **named))

    return created


def _settled(backend: Any, attachment: Any) -> object:  # noqa: ANN401  # moto's own
    hub = backend.transit_gateways[attachment.transit_gateway_id]
    attachment.transit_gateway_route_table = None
    if hub.options["DefaultRouteTableAssociation"] == _ENABLED:
        attachment.transit_gateway_route_table = hub.default_route_table
        backend.associate_transit_gateway_route_table(attachment.id, hub.default_route_table.id)
    if hub.options["DefaultRouteTablePropagation"] == _ENABLED:
        backend.enable_transit_gateway_route_table_propagation(attachment.id, hub.default_route_table.id)
    return attachment


def _clear(backend: Any, ident: str) -> None:  # noqa: ANN401
    """Take an attachment out of all tables of a region."""
    for table in backend.transit_gateways_route_tables.values():
        table.route_table_associations.pop(ident, None)
        table.route_table_propagation = [
            each for each in table.route_table_propagation if each.transitGatewayAttachmentId != ident
        ]
    backend.transit_gateway_associations.pop(ident, None)
    backend.transit_gateway_propagations.pop(ident, None)


def _keeping_deleted(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Tell of a deleted attachment of a VPC as deleted: the provider waits until it hears that."""

    def deleted(backend: Any, transit_gateway_attachment_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_attachment_id=transit_gateway_attachment_id)
        _clear(backend, gone.id)
        backend.transit_gateway_attachments[gone.id] = gone
        return gone

    return deleted


def _clearing_both_ends(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Take a deleted peering out of the tables of both regions."""

    def deleted(backend: Any, transit_gateway_attachment_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_attachment_id=transit_gateway_attachment_id)
        for other in type(backend)._get_peering_attachment_backend_refs():  # noqa: SLF001  # moto's way to the peer
            if gone.id in other.transit_gateway_attachments:
                _clear(other, gone.id)
        return gone

    return deleted


def _clearing_tunnels(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Take the attachment of a deleted VPN connection out of all tables."""

    def deleted(backend: Any, vpn_connection_id: str) -> object:  # noqa: ANN401
        for ident, attachment in backend.transit_gateway_attachments.items():
            if attachment.resource_id == vpn_connection_id:
                _clear(backend, ident)
        return delete(backend, vpn_connection_id)

    return deleted


def _one_of_several(disable: Callable[..., Any]) -> Callable[..., Any]:
    """Let an attachment stop propagating to one table of several: moto knows of one only."""

    def disabled(backend: Any, transit_gateway_attachment_id: str, transit_gateway_route_table_id: str) -> object:  # noqa: ANN401
        pair = (transit_gateway_attachment_id, transit_gateway_route_table_id)
        known = backend.transit_gateway_propagations
        known.setdefault(pair[0], TransitGatewayRelations(backend, *pair, state="enabled"))
        return disable(backend, *pair)

    return disabled


def _with_its_tables(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Delete a gateway's tables with it."""

    def deleted(backend: Any, transit_gateway_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_id)
        for table in backend.transit_gateways_route_tables.values():
            if table.transit_gateway_id == transit_gateway_id:
                table.state = "deleted"
        return gone

    return deleted


_Repair = Callable[[Callable[..., Any]], Callable[..., Any]]
_ATTACHMENTS, _TABLES = TransitGatewayAttachmentBackend, TransitGatewayRouteTableBackend
_REPAIRS: Mapping[tuple[type, str], _Repair] = MappingProxyType(
    {
        (_ATTACHMENTS, "create_transit_gateway_vpc_attachment"): _settling_network,
        (_ATTACHMENTS, "create_transit_gateway_vpn_attachment"): _settling_tunnels,
        (_ATTACHMENTS, "delete_transit_gateway_vpc_attachment"): _keeping_deleted,
        (_ATTACHMENTS, "delete_transit_gateway_peering_attachment"): _clearing_both_ends,
        (VPNConnectionBackend, "delete_vpn_connection"): _clearing_tunnels,
        (_TABLES, "create_transit_gateway_route"): keeping_attachments,
        (_TABLES, "search_transit_gateway_routes"): telling_routes,
        (_TABLES, "disable_transit_gateway_route_table_propagation"): _one_of_several,
        (TransitGatewayBackend, "delete_transit_gateway"): _with_its_tables,
    }
)
