"""Associations of route tables with subnets and gateways."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import ROUTE_TABLE, SUBNET, described
from bedplate.rehearsal.kinds.kept_ids import current_id, drop_id, keep_id
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_TARGETS = {"gatewayId": "GatewayId", "subnetId": "SubnetId"}


def _create(aws: Aws, inputs: Props) -> str:
    table = described(aws, ROUTE_TABLE, inputs["routeTableId"])
    if subnet := inputs.get("subnetId"):
        _require_free(aws, table, subnet)
    target = {parameter: inputs[name] for name, parameter in _TARGETS.items() if inputs.get(name)}
    made = aws.call("ec2", "associate_route_table", RouteTableId=inputs["routeTableId"], **target)
    return str(made["AssociationId"])


def _require_free(aws: Aws, table: dict[str, Any], subnet: str) -> None:
    if described(aws, SUBNET, subnet)["VpcId"] != table["VpcId"]:
        told = f"Route table {table['RouteTableId']} and subnet {subnet} belong to different networks"
        raise Refusal("InvalidParameterValue", told)
    theirs = [{"Name": "association.subnet-id", "Values": [subnet]}]
    if aws.call("ec2", "describe_route_tables", Filters=theirs)["RouteTables"]:
        told = (
            f"the specified association for route table {table['RouteTableId']} conflicts with an existing association"
        )
        raise Refusal("Resource.AlreadyAssociated", told)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old["routeTableId"] != new["routeTableId"]:
        keep_id(aws, ident, _replace(aws, current_id(aws, ident), new["routeTableId"]))


def _replace(aws: Aws, association: str, table: str) -> str:
    made = aws.call("ec2", "replace_route_table_association", AssociationId=association, RouteTableId=table)
    return str(made["NewAssociationId"])


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    _find(aws, current_id(aws, ident))
    return {}


def _find(aws: Aws, association: str) -> None:
    ours = [{"Name": "association.route-table-association-id", "Values": [association]}]
    if not aws.call("ec2", "describe_route_tables", Filters=ours)["RouteTables"]:
        raise Refusal("InvalidAssociationID.NotFound", f"The association ID '{association}' does not exist")


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "disassociate_route_table", AssociationId=current_id(aws, ident))
    drop_id(aws, ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if bool(inputs.get("subnetId")) == bool(inputs.get("gatewayId")):
        yield Complaint("subnetId", "give exactly one of subnetId, gatewayId")


ROUTE_TABLE_ASSOCIATION = Kind(
    token="aws:ec2/routeTableAssociation:RouteTableAssociation",
    inputs=updates("routeTableId") | replaces(*_TARGETS),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
