"""Where machines boot for the first time: a fleet's zone and parameters in a simulated AWS, and the door to it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bedplate.plan.hostnames import ssh_pools
from bedplate.rehearsal.simulation import Aws
from stacks.parameters import administrators
from tests.support.declared import EXAMPLES, plan_of
from tests.support.front_door import FrontDoor, front_door
from tests.support.node import Node, node

PLAN = plan_of(EXAMPLES / "lab.yaml")
POOL = replace(ssh_pools(PLAN)[0], max=3)
LAB = replace(PLAN, pools=(POOL, *(pool for pool in PLAN.pools if pool.group != POOL.group)))
_TYPES = ("A", "TXT", "SSHFP")


class Place:
    """A fleet's zone and machines, and the door through which they ask for them."""

    def __init__(self, door: FrontDoor, root: Path, stack: ExitStack) -> None:
        self.door, self.aws, self._root, self._stack = door, door.aws, root, stack
        vpc = self.aws.call("ec2", "create_vpc", CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        about = {"Name": "lab.internal", "VPC": {"VPCRegion": self.aws.region, "VPCId": vpc}}
        private = {"HostedZoneConfig": {"PrivateZone": True}}
        made = self.aws.call("route53", "create_hosted_zone", CallerReference=str(root), **about, **private)
        self.zone = made["HostedZone"]["Id"].rpartition("/")[2]
        self.tell("zone", self.zone)
        self.tell("admins", administrators(LAB.accounts))

    def tell(self, name: str, value: str) -> None:
        """Write a parameter of the fleet."""
        call = {"Name": f"/lab/{name}", "Value": value, "Type": "SecureString", "Overwrite": True}
        self.aws.call("ssm", "put_parameter", **call)

    def machine(self) -> Node:
        """Start a machine."""
        image = self.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"]
        made = self.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, InstanceType="m7i.large")
        (one,) = made["Instances"]
        folder = self._root / one["InstanceId"]
        return self._stack.enter_context(node(folder, self.door, one["InstanceId"], one["PrivateIpAddress"]))

    def end(self, machine: Node) -> None:
        """End a machine without a word to anybody."""
        self.aws.call("ec2", "terminate_instances", InstanceIds=[machine.facts["instance-id"]])

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Who has which name: the address, the instance that owns it, and the host key that it is known by."""
        listed = self.aws.call("route53", "list_resource_record_sets", HostedZoneId=self.zone)["ResourceRecordSets"]
        found: dict[str, dict[str, str]] = {}
        for one in (one for one in listed if one["Type"] in _TYPES):
            found.setdefault(one["Name"], {})[one["Type"]] = one["ResourceRecords"][0]["Value"].strip('"')
        return {name: tuple(told.get(kind, "") for kind in _TYPES) for name, told in found.items()}

    @property
    def reports(self) -> list[tuple[str, str, str]]:
        """What hooks were told: group, hook, result."""
        keys = ("AutoScalingGroupName", "LifecycleHookName", "LifecycleActionResult")
        told = (one for one in self.door.asked if one["action"] == "CompleteLifecycleAction")
        return [(one[keys[0]], one[keys[1]], one[keys[2]]) for one in told]


@contextmanager
def boot_place(account: Aws, root: Path) -> Iterator[Place]:
    """Give a fleet of no machines, whose folders will lie in `root`."""
    with ExitStack() as stack:
        yield Place(stack.enter_context(front_door(account)), root, stack)
