"""Static routes of VPN connections, of which moto has none: kept by us."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, Support, replaces
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import VPN_CONNECTION, require
from bedplate.rehearsal.kinds.vpn_connection import ROUTES, takes_static_routes
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    connection, block = inputs["vpnConnectionId"], inputs["destinationCidrBlock"]
    require(aws, VPN_CONNECTION, connection)
    if not takes_static_routes(aws, connection):
        told = f"The VPN connection {connection} does not support static routes"
        raise Refusal("InvalidVpnConnection.InvalidType", told)
    # The provider's own: AWS gives these routes no ids.
    ident = f"{block}:{connection}"
    aws.fakes(ROUTES)[ident] = {"destinationCidrBlock": block, "vpnConnectionId": connection}
    return ident


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if ident not in aws.fakes(ROUTES):
        raise Refusal("InvalidRoute.NotFound", f"The VPN connection has no route {ident}")
    return {}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.fakes(ROUTES).pop(ident, None)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["destinationCidrBlock"])


VPN_CONNECTION_ROUTE = Kind(
    token=ROUTES,
    inputs=replaces("destinationCidrBlock", "vpnConnectionId"),
    create=_create,
    read=_read,
    delete=_delete,
    complaints=_complaints,
    support=Support.FAKED,
    note="moto has no routes of VPN connections",
)
