"""Resources in the simulated AWS that fixtures of kinds refer to, and the class of these fixtures.

`World` creates VPCs, subnets and other resources with boto3 calls when a fixture first uses them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from bedplate.rehearsal.simulation import Aws
from tests.testlab.rehearsal.live import Describe

TRUST: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass
class World:
    """The ids of resources in one region, each created on first use."""

    aws: Aws

    def create(self, operation: str, path: str, /, service: str = "ec2", **params: object) -> str:
        """Create a resource with one call; return the value at a dotted path of the response."""
        value: Any = self.aws.call(service, operation, **params)
        for part in path.split("."):
            value = value[part]
        return str(value)

    @cached_property
    def vpc(self) -> str:
        """A VPC with 10.20.0.0/16 and DNS host names."""
        ident = self.create("create_vpc", "Vpc.VpcId", CidrBlock="10.20.0.0/16")
        self.aws.call("ec2", "modify_vpc_attribute", VpcId=ident, EnableDnsHostnames={"Value": True})
        return ident

    @cached_property
    def far_vpc(self) -> str:
        """A VPC with 10.30.0.0/16."""
        return self.create("create_vpc", "Vpc.VpcId", CidrBlock="10.30.0.0/16")

    @cached_property
    def subnet(self) -> str:
        """A subnet of the VPC in the region's first zone."""
        return self._subnet("10.20.0.0/24", "a")

    @cached_property
    def other_subnet(self) -> str:
        """A subnet of the VPC in the region's second zone."""
        return self._subnet("10.20.1.0/24", "b")

    def _subnet(self, block: str, zone: str) -> str:
        zone_name = f"{self.aws.region}{zone}"
        return self.create(
            "create_subnet", "Subnet.SubnetId", VpcId=self.vpc, CidrBlock=block, AvailabilityZone=zone_name
        )

    @cached_property
    def table(self) -> str:
        """A route table of the VPC."""
        return self.create("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def other_table(self) -> str:
        """Another route table of the VPC."""
        return self.create("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def gateway(self) -> str:
        """An internet gateway, attached to the VPC."""
        ident = self.create("create_internet_gateway", "InternetGateway.InternetGatewayId")
        self.aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=self.vpc)
        return ident

    @cached_property
    def group(self) -> str:
        """A security group of the VPC."""
        return self._group("nodes")

    @cached_property
    def other_group(self) -> str:
        """Another security group of the VPC."""
        return self._group("storage")

    def _group(self, name: str) -> str:
        return self.create("create_security_group", "GroupId", GroupName=name, Description=name, VpcId=self.vpc)

    @cached_property
    def address(self) -> str:
        """An unused elastic IP address."""
        return self.create("allocate_address", "AllocationId", Domain="vpc")

    @cached_property
    def interface(self) -> str:
        """A network interface in the subnet."""
        path = "NetworkInterface.NetworkInterfaceId"
        return self.create("create_network_interface", path, SubnetId=self.subnet, Groups=[self.group])

    @cached_property
    def vpn_gateway(self) -> str:
        """A virtual private gateway, attached to the VPC."""
        ident = self.create("create_vpn_gateway", "VpnGateway.VpnGatewayId", Type="ipsec.1", AmazonSideAsn=64600)
        self.aws.call("ec2", "attach_vpn_gateway", VpnGatewayId=ident, VpcId=self.vpc)
        return ident

    @cached_property
    def customer_gateway(self) -> str:
        """A customer gateway."""
        return self.create(
            "create_customer_gateway",
            "CustomerGateway.CustomerGatewayId",
            Type="ipsec.1",
            BgpAsn=65010,
            IpAddress="8.20.30.40",
        )

    @cached_property
    def hub(self) -> str:
        """A transit gateway."""
        return self.create("create_transit_gateway", "TransitGateway.TransitGatewayId")

    @cached_property
    def hub_table(self) -> str:
        """An empty route table of the transit gateway."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.create("create_transit_gateway_route_table", path, TransitGatewayId=self.hub)

    @cached_property
    def plain_hub(self) -> str:
        """A transit gateway without default association and propagation."""
        options = {"DefaultRouteTableAssociation": "disable", "DefaultRouteTablePropagation": "disable"}
        return self.create("create_transit_gateway", "TransitGateway.TransitGatewayId", Options=options)

    @cached_property
    def plain_table(self) -> str:
        """A route table of that gateway."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.create("create_transit_gateway_route_table", path, TransitGatewayId=self.plain_hub)

    @cached_property
    def attachment(self) -> str:
        """The VPC's attachment to that gateway."""
        path = "TransitGatewayVpcAttachment.TransitGatewayAttachmentId"
        ends = {"TransitGatewayId": self.plain_hub, "VpcId": self.vpc}
        return self.create("create_transit_gateway_vpc_attachment", path, SubnetIds=[self.subnet], **ends)

    @cached_property
    def abroad(self) -> "World":
        """A world in another region."""
        return World(self.aws.in_region("us-east-2"))

    @cached_property
    def hub_request(self) -> str:
        """A peering of transit gateways, requested by the other region."""
        path = "TransitGatewayPeeringAttachment.TransitGatewayAttachmentId"
        peer = {"PeerRegion": self.aws.region, "PeerAccountId": self.aws.account}
        ends = {"TransitGatewayId": self.abroad.plain_hub, "PeerTransitGatewayId": self.plain_hub}
        return self.abroad.create("create_transit_gateway_peering_attachment", path, **ends, **peer)

    @cached_property
    def role(self) -> str:
        """The ARN of a role that EC2 may assume."""
        name = f"role-{self.vpc}"
        trust = json.dumps(TRUST)
        return self.create("create_role", "Role.Arn", "iam", RoleName=name, AssumeRolePolicyDocument=trust)

    @cached_property
    def peering(self) -> str:
        """An accepted peering of the two VPCs."""
        ident = self.pending_peering
        self.aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
        return ident

    @cached_property
    def pending_peering(self) -> str:
        """A peering of the two VPCs, not accepted."""
        path = "VpcPeeringConnection.VpcPeeringConnectionId"
        return self.create("create_vpc_peering_connection", path, VpcId=self.vpc, PeerVpcId=self.far_vpc)

    def service(self, name: str) -> str:
        """Return the name of an AWS service for endpoints."""
        return f"com.amazonaws.{self.aws.region}.{name}"

    def born_with(self, operation: str, listing: str, ident: str) -> str:
        """Return the id of a default resource of the VPC from a describe call."""
        filters = [{"Name": "vpc-id", "Values": [self.vpc]}]
        return str(self.aws.call("ec2", operation, Filters=filters)[listing][0][ident])


IMAGE = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_numbers = count(1)


def fresh(prefix: str) -> str:
    """Return a unique name."""
    return f"{prefix}-{next(_numbers)}"


def document(action: str, resource: str = "*", **more: object) -> str:
    """Return a policy that allows one action."""
    statement = {"Effect": "Allow", "Action": action, "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def open_policy(action: str, resource: str = "*") -> str:
    """Return a resource policy that denies one action to all principals."""
    statement = {"Effect": "Deny", "Action": action, "Resource": resource, "Principal": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def key_policy(action: str) -> str:
    """Return a key policy that allows the account everything except one action."""
    owner = {"AWS": "arn:aws:iam::111122223333:root"}
    allow_account = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": owner}
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [allow_account, *json.loads(open_policy(action))["Statement"]]}
    )


def trust(**more: object) -> str:
    """Return a trust policy for EC2."""
    return json.dumps({**TRUST, **more})


def role_name(world: World) -> str:
    """Return the name of a role."""
    return world.role.rpartition("/")[2]


def managed_policy(world: World) -> str:
    """Make a policy; return its ARN."""
    call = {"PolicyName": fresh("policy"), "PolicyDocument": document("s3:GetObject")}
    return world.create("create_policy", "Policy.Arn", "iam", **call)


def profile(world: World) -> str:
    """Make an instance profile; return its name."""
    path = "InstanceProfile.InstanceProfileName"
    return world.create("create_instance_profile", path, "iam", InstanceProfileName=fresh("profile"))


def key(world: World, **params: object) -> str:
    """Make a KMS key; return its ARN."""
    return world.create("create_key", "KeyMetadata.Arn", "kms", **params)


def bucket(world: World) -> str:
    """Make a bucket; return its name."""
    name = fresh("bucket")
    place: Any = {"LocationConstraint": world.aws.region}
    world.aws.call("s3", "create_bucket", Bucket=name, CreateBucketConfiguration=place)
    return name


def file_system(world: World) -> str:
    """Make a file system; return its id."""
    return world.create("create_file_system", "FileSystemId", "efs", CreationToken=fresh("token"))


def zone(world: World) -> str:
    """Make a private zone of the VPC; return its id."""
    return world.create(
        "create_hosted_zone",
        "HostedZone.Id",
        "route53",
        Name=f"{fresh('lab')}.internal",
        CallerReference=fresh("call"),
        HostedZoneConfig={"Comment": "", "PrivateZone": True},
        VPC={"VPCRegion": world.aws.region, "VPCId": world.vpc},
    ).rpartition("/")[2]


def template(world: World, instance_type: str = "m7i.large", groups: list[str] | None = None) -> str:
    """Make a launch template, by default with the security group of the world; return its id."""
    group_ids = [world.group] if groups is None else groups
    data = {"InstanceType": instance_type, "ImageId": IMAGE, "SecurityGroupIds": group_ids}
    path, name = "LaunchTemplate.LaunchTemplateId", fresh("template")
    return world.create("create_launch_template", path, LaunchTemplateName=name, LaunchTemplateData=data)


def scaling_group(world: World) -> str:
    """Make an empty Auto Scaling group; return its name."""
    name = fresh("group")
    call: dict[str, Any] = {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 2,
        "LaunchTemplate": {"LaunchTemplateId": template(world)},
        "VPCZoneIdentifier": world.subnet,
    }
    world.aws.call("autoscaling", "create_auto_scaling_group", **call)
    return name


def placement_group(world: World) -> str:
    """Store a fake placement group, which moto does not have; return its name."""
    name = fresh("placement")
    world.aws.fakes("aws:ec2/placementGroup:PlacementGroup")[f"{world.aws.region}/{name}"] = {}
    return name


def image(world: World) -> str:
    """Return the id of an existing image."""
    return str(world.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"])


def secret(world: World) -> str:
    """Make a secret; return its ARN."""
    return world.create("create_secret", "ARN", "secretsmanager", Name=fresh("secret"))


def text(policy: object) -> str:
    """Return a policy, which AWS returns as a mapping, as JSON like that of the functions above."""
    return json.dumps(policy)


# Inputs, or a function that returns inputs with ids of a world.
Given = dict[str, Any] | Callable[[World], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KindFixture:
    """Valid inputs of a kind, changes to them, and how AWS returns them; a kind may have several variants."""

    token: str
    variant: str = field(default="", kw_only=True)
    inputs: Given = field(kw_only=True)
    changes: Given = field(default_factory=dict, kw_only=True)
    """New values of inputs that can be updated, tested one after another in this order."""
    read_back: Describe = field(kw_only=True)
    not_returned: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Inputs that neither AWS nor moto returns."""
    adopted: bool = field(default=False, kw_only=True)
    """Whether the kind takes over an existing resource, which stays after a delete."""

    def __str__(self) -> str:
        name = self.token.rpartition(":")[2]
        return f"{name} {self.variant}".strip()

    def inputs_in(self, world: World) -> dict[str, Any]:
        """Return the inputs of a program in a world."""
        return self.inputs(world) if callable(self.inputs) else self.inputs

    def changes_in(self, world: World) -> dict[str, Any]:
        """Return the changes of a program in a world."""
        return self.changes(world) if callable(self.changes) else self.changes
