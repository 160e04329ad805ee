"""Lone routes, beside those that a table lists itself."""

import zlib
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import ROUTE_TABLE, described
from bedplate.rehearsal.kinds.routes import (
    TARGETS,
    Path,
    add_path,
    path_of,
    paths_in,
    remove_path,
    route_faults,
)
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_DESTINATIONS = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def _create(aws: Aws, inputs: Props) -> str:
    path = path_of(inputs, _DESTINATIONS)
    add_path(aws, inputs["routeTableId"], path)
    # The provider's own: AWS gives routes no ids.
    return f"r-{inputs['routeTableId']}{zlib.crc32(path.destination[1].encode())}"


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    table = new["routeTableId"]
    present, wanted = _present(aws, old), path_of(new, _DESTINATIONS)
    if present == wanted:
        return
    remove_path(aws, table, present)
    try:
        add_path(aws, table, wanted)
    except Refusal:
        add_path(aws, table, present)
        raise


def _present(aws: Aws, inputs: Props) -> Path:
    destination = path_of(inputs, _DESTINATIONS).destination
    for path in paths_in(described(aws, ROUTE_TABLE, inputs["routeTableId"])):
        if path.destination == destination:
            return path
    raise Refusal("InvalidRoute.NotFound", f"no route with destination {destination[1]} in {inputs['routeTableId']}")


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    _present(aws, inputs)
    return {"origin": "CreateRoute", "state": "active"}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    remove_path(aws, outputs["routeTableId"], _present(aws, outputs))


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from (Complaint("routeTableId", fault) for fault in route_faults(inputs, _DESTINATIONS))
    yield from block_complaints(inputs, ["destinationCidrBlock"])
    yield from block_complaints(inputs, ["destinationIpv6CidrBlock"], version=6)


ROUTE = Kind(
    token="aws:ec2/route:Route",
    inputs=updates(*TARGETS) | replaces(*_DESTINATIONS, "routeTableId"),
    computed=frozenset({"gatewayId", "networkInterfaceId"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
