"""What happens to a fleet between two runs of its stacks: a day passes, and nodes register their names."""

from datetime import timedelta

from bedplate.rehearsal.simulation import Aws, Simulation
from bedplate.rehearsal.stack import Stack

_DAY = timedelta(days=1)


def pass_a_day(simulation: Simulation, stacks: tuple[Stack, ...]) -> None:
    """Advance the simulated clock by a day, and register a node in each private zone that nodes write to."""
    simulation.elapsed += _DAY
    aws = simulation.region("us-east-1")
    for stack in stacks:
        if stack.node_zone:
            _register(aws, stack.node_zone)


def _register(aws: Aws, domain: str) -> None:
    """Write the record of a node into the private zones of a domain."""
    record = {
        "Name": f"rehearsal-1.{domain}",
        "Type": "TXT",
        "TTL": 60,
        "ResourceRecords": [{"Value": '"i-0123456789abcdef0"'}],
    }
    batch = {"Changes": [{"Action": "UPSERT", "ResourceRecordSet": record}]}
    for zone in aws.call("route53", "list_hosted_zones_by_name", DNSName=domain)["HostedZones"]:
        if zone["Name"] == f"{domain}." and zone["Config"]["PrivateZone"]:
            aws.call("route53", "change_resource_record_sets", HostedZoneId=zone["Id"], ChangeBatch=batch)
