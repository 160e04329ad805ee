"""A program with most features of Pulumi, in seven versions, run by both the real engine and the rehearsal.

Each version has one more kind of change than the one before it.
"""

import json

import pulumi
import pulumi_aws as aws
from pulumi import Alias, Input, Output, ResourceOptions

LAST = 7
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


class Net(pulumi.ComponentResource):
    """A VPC with an internet gateway, a route table, and a subnet in each of two zones."""

    def __init__(self, name: str, block: str, opts: ResourceOptions) -> None:
        super().__init__("bedplate:test:Net", name, {"block": f"{block}.0.0/16"}, opts)
        inside = ResourceOptions(parent=self)
        tags = {"Name": name, "purpose": "test"}
        self.vpc = aws.ec2.Vpc(f"{name}-vpc", cidr_block=f"{block}.0.0/16", tags=tags, opts=inside)
        self.gateway = aws.ec2.InternetGateway(f"{name}-gateway", vpc_id=self.vpc.id, opts=inside)
        self.table = aws.ec2.RouteTable(f"{name}-table", vpc_id=self.vpc.id, opts=inside)
        after = ResourceOptions(parent=self, depends_on=[self.gateway])
        target = {"route_table_id": self.table.id, "gateway_id": self.gateway.id}
        aws.ec2.Route(f"{name}-out", destination_cidr_block="0.0.0.0/0", opts=after, **target)
        self.subnets = [self._subnet(name, n, f"{block}.{n}.0/24") for n in (0, 1)]
        self.register_outputs({"vpc_id": self.vpc.id})

    def _subnet(self, name: str, n: int, block: str) -> aws.ec2.Subnet:
        where = {"vpc_id": self.vpc.id, "cidr_block": block, "availability_zone": f"us-west-2{'ab'[n]}"}
        subnet = aws.ec2.Subnet(f"{name}-subnet-{n}", **where, opts=ResourceOptions(parent=self))
        ends = {"subnet_id": subnet.id, "route_table_id": self.table.id}
        aws.ec2.RouteTableAssociation(f"{name}-tie-{n}", **ends, opts=ResourceOptions(parent=subnet))
        return subnet


class Site(pulumi.ComponentResource):
    """Two networks in one component; the second is deleted before it is replaced."""

    def __init__(self, name: str, version: int, opts: ResourceOptions) -> None:
        super().__init__("bedplate:test:Site", name, {"version": 2 if version >= 2 else 1}, opts)
        self.main = Net("main", "10.8" if version < 3 else "10.9", ResourceOptions(parent=self))
        inside = ResourceOptions(parent=self, delete_before_replace=True)
        block = f"10.{20 if version < 4 else 21}.0.0/16"
        self.first = aws.ec2.Vpc("first", cidr_block=block, tags={"purpose": "test"}, opts=inside)
        where = {"vpc_id": self.first.id, "cidr_block": f"10.{20 if version < 4 else 21}.1.0/24"}
        aws.ec2.Subnet("first-subnet", **where, opts=ResourceOptions(parent=self))
        self.register_outputs({})


class Machines(pulumi.ComponentResource):
    """The resources of an Auto Scaling group: role, instance profile, security group, launch template."""

    def __init__(self, name: str, version: int, net: Net, opts: ResourceOptions) -> None:
        super().__init__("bedplate:test:Machines", name, None, opts)
        inside = ResourceOptions(parent=self)
        self.role = aws.iam.Role("node", assume_role_policy=json.dumps(_TRUST), opts=inside)
        profile = aws.iam.InstanceProfile("node", role=self.role.name, opts=inside)
        guard = aws.ec2.SecurityGroup(
            "node",
            vpc_id=net.vpc.id,
            description="Nodes",
            tags={"v": str(min(version, 2))},
            opts=inside,
        )
        template = aws.ec2.LaunchTemplate(
            "node",
            image_id="ami-12c6146b" if version < 6 else "ami-1e749f67",
            instance_type="m5.large",
            vpc_security_group_ids=[guard.id],
            iam_instance_profile={"arn": profile.arn},
            opts=inside,
        )
        aws.autoscaling.Group(
            "pool",
            min_size=0,
            max_size=2 if version < 2 else 3,
            desired_capacity=0,
            vpc_zone_identifiers=[subnet.id for subnet in net.subnets],
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            opts=ResourceOptions(parent=self, ignore_changes=["maxSize"]),
        )
        self.register_outputs({"role": self.role.name})


def _parameters(version: int, token: Input[str], own: ResourceOptions) -> None:
    west = {"type": "String", "opts": own}
    secret = Output.secret(f"pass-{min(version, 2)}")
    aws.ssm.Parameter("password", name="/lab/password", type="SecureString", value=secret, opts=own)
    aws.ssm.Parameter("token", name="/lab/token", value=token, **west)
    aws.ssm.Parameter("east", name="/lab/east", type="String", value="e", region="us-east-1", opts=own)
    hidden = ResourceOptions.merge(own, ResourceOptions(additional_secret_outputs=["arn"]))
    aws.ssm.Parameter("hidden", name="/lab/hidden", type="String", value="h", opts=hidden)
    if version < 7:
        gone = aws.ssm.Parameter("gone", name="/lab/gone", value="g", **west)
        aws.ssm.Parameter("gone-too", name="/lab/gone-too", value=gone.value, **west)
    else:
        aws.ssm.Parameter("new", name="/lab/new", value="n", **west)


def _stores(version: int, own: ResourceOptions) -> None:
    kept = ResourceOptions.merge(own, ResourceOptions(protect=version < 5, retain_on_delete=True))
    aws.s3.Bucket("data", tags={"Name": "data"}, opts=kept)
    renamed = ResourceOptions.merge(own, ResourceOptions(aliases=[Alias(name="address")]))
    aws.ec2.Eip("address" if version < 5 else "door", domain="vpc", tags={"Name": "address"}, opts=renamed)
    aws.efs.FileSystem("home", creation_token="home", encrypted=True, opts=own)  # noqa: S106  # a name, not a password


def declare(version: int) -> None:
    """Declare one version of the program."""
    west = aws.Provider("west", region="us-west-2")
    own = ResourceOptions(provider=west)
    name, aliases = ("site", ()) if version < 5 else ("plant", (Alias(name="site"),))
    under = ResourceOptions.merge(ResourceOptions(providers=[west]), ResourceOptions(aliases=list(aliases)))
    site = Site(name, version, under)
    machines = Machines("machines", version, site.main, ResourceOptions(providers=[west]))
    shared = pulumi.StackReference("organization/shared/prod")
    _parameters(version, shared.require_output("token"), own)
    _stores(version, own)
    vpc = aws.ec2.Vpc.get("found", site.main.vpc.id, opts=own)
    pulumi.export("vpc_id", vpc.id)
    pulumi.export("role", machines.role.name)
    pulumi.export("token", shared.require_output("token"))


def declare_shared() -> None:
    """Declare the stack whose exports the program reads."""
    pulumi.export("zone", "example.internal")
    pulumi.export("token", Output.secret("s3cr3t"))
