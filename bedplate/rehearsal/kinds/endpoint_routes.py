"""Routes that AWS keeps in the tables of a gateway endpoint; moto makes them at its creation alone."""

from collections.abc import Iterable

from bedplate.rehearsal.kinds.described import VPC_ENDPOINT, described
from bedplate.rehearsal.simulation import Aws


def lead_to(aws: Aws, endpoint: str, tables: Iterable[str]) -> None:
    """Add the endpoint's route to tables."""
    for table in tables:
        destination = _destination(aws, endpoint)
        aws.call("ec2", "create_route", RouteTableId=table, GatewayId=endpoint, DestinationPrefixListId=destination)


def lead_to_no_more(aws: Aws, endpoint: str, tables: Iterable[str]) -> None:
    """Take the endpoint's route out of tables."""
    for table in tables:
        destination = _destination(aws, endpoint)
        aws.call("ec2", "delete_route", RouteTableId=table, DestinationPrefixListId=destination)


def _destination(aws: Aws, endpoint: str) -> str:
    service = described(aws, VPC_ENDPOINT, endpoint)["ServiceName"]
    named = [{"Name": "prefix-list-name", "Values": [service]}]
    (found,) = aws.call("ec2", "describe_managed_prefix_lists", Filters=named)["PrefixLists"]
    return str(found["PrefixListId"])
