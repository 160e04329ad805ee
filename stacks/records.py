"""The fleet's names: machines of sites, gateways of laptops, file systems. Nodes tell theirs when they start."""

from collections.abc import Iterator, Mapping

import pulumi
from pulumi_aws.route53.record import Record, RecordArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.side import Side

TTL_SECONDS = 300
Addresses = pulumi.Input[list[pulumi.Input[str]]]


class FleetRecords(pulumi.ComponentResource):
    """An A record for each thing with an address of its own, as `<thing>.<place>.<domain>`."""

    def __init__(
        self, plan: FleetPlan, zone_id: pulumi.Output[str], every: Mapping[str, Side], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("bedplate:stacks:FleetRecords", plan.name, None, opts)
        for name, addresses in records(plan, every):
            args = RecordArgs(
                zone_id=zone_id, name=f"{name}.{plan.domain}", type="A", ttl=TTL_SECONDS, records=addresses
            )
            Record(f"{plan.name}-{name}", args, inside(self))
        self.register_outputs({})


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
