"""Route tables that lead to a gateway endpoint, beside those that it lists itself."""

import zlib
from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces
from bedplate.rehearsal.kinds.described import ROUTE_TABLE, VPC_ENDPOINT, described, require
from bedplate.rehearsal.kinds.endpoint_routes import lead_to, lead_to_no_more
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _create(aws: Aws, inputs: Props) -> str:
    endpoint, table = inputs["vpcEndpointId"], inputs["routeTableId"]
    require(aws, ROUTE_TABLE, table)
    if described(aws, VPC_ENDPOINT, endpoint)["VpcEndpointType"] != "Gateway":
        raise Refusal("InvalidParameter", "Route tables are only supported for Gateway endpoints", key="vpcEndpointId")
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, AddRouteTableIds=[table])
    lead_to(aws, endpoint, [table])
    # The provider's own: AWS gives associations no ids.
    return f"a-{endpoint}{zlib.crc32(table.encode())}"


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if inputs["routeTableId"] not in described(aws, VPC_ENDPOINT, inputs["vpcEndpointId"])["RouteTableIds"]:
        raise Refusal("InvalidRouteTableId.NotFound", f"the endpoint has no route table {inputs['routeTableId']}")
    return {}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    endpoint, table = outputs["vpcEndpointId"], outputs["routeTableId"]
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, RemoveRouteTableIds=[table])
    lead_to_no_more(aws, endpoint, [table])


VPC_ENDPOINT_ASSOCIATION = Kind(
    token="aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
    inputs=replaces("routeTableId", "vpcEndpointId"),
    create=_create,
    read=_read,
    delete=_delete,
)
