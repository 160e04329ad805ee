"""The fleet's names: machines with fixed addresses, gateways of laptops, file systems. Nodes write their own."""

from collections.abc import Iterator, Mapping

import pulumi
from pulumi_aws.route53.record import Record, RecordArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.hostnames import api_name
from stacks.options import inside
from stacks.side import Side

TTL_SECONDS = 300
# Clients dial every address of the API in turn; one that moved is forgotten within a minute.
API_TTL_SECONDS = 60
Addresses = pulumi.Input[list[pulumi.Input[str]]]


class FleetRecords(pulumi.ComponentResource):
    """An A record for each thing with an address of its own, as `<thing>.<place>.<domain>`."""

    def __init__(
        self, plan: FleetPlan, zone_id: pulumi.Output[str], every: Mapping[str, Side], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:FleetRecords", plan.name, None, opts)
        for name, addresses in records(plan, every):
            self._record(f"{plan.name}-{name}", zone_id, f"{name}.{plan.domain}", addresses)
        if plan.control_plane:
            members: Addresses = [str(member.address) for member in plan.control_plane.members]
            self._record(f"{plan.name}-kubernetes", zone_id, api_name(plan), members, API_TTL_SECONDS)
        self.register_outputs({})

    def _record(
        self, title: str, zone_id: pulumi.Output[str], name: str, addresses: Addresses, ttl: int = TTL_SECONDS
    ) -> None:
        args = RecordArgs(zone_id=zone_id, name=name, type="A", ttl=ttl, records=addresses)
        Record(title, args, inside(self))


def records(plan: FleetPlan, every: Mapping[str, Side]) -> Iterator[tuple[str, Addresses]]:
    """Yield every name, without the domain, and its addresses.

    A file system's own name resolves in its region alone, so elsewhere it goes by its mount targets' addresses.
    """
    for name, address in plan.addresses.items():
        yield name, [str(address)]
    for pool in plan.laptops:
        if pool.place in every:
            yield f"laptops.{pool.place}", [every[pool.place].output("laptop_gateway")["private_ip"]]
    for files in plan.files:
        yield f"{files.store}.files.{files.region}", every[files.region].output("files")[files.store]["addresses"]
