"""A small world that specimens of resource kinds stand in, made by plain AWS calls: each part when first asked for."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from bedplate.rehearsal.simulation import Aws
from tests.testlab.rehearsal.live import Told

TRUST: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass
class World:
    """Parts by what they are; ids throughout."""

    aws: Aws

    def made(self, operation: str, path: str, /, service: str = "ec2", **params: object) -> str:
        """Make something by one call and return what the reply holds at a dotted path."""
        found: Any = self.aws.call(service, operation, **params)
        for part in path.split("."):
            found = found[part]
        return str(found)

    @cached_property
    def vpc(self) -> str:
        """A VPC of 10.20.0.0/16 that resolves names."""
        ident = self.made("create_vpc", "Vpc.VpcId", CidrBlock="10.20.0.0/16")
        self.aws.call("ec2", "modify_vpc_attribute", VpcId=ident, EnableDnsHostnames={"Value": True})
        return ident

    @cached_property
    def far_vpc(self) -> str:
        """Another VPC, apart from the first."""
        return self.made("create_vpc", "Vpc.VpcId", CidrBlock="10.30.0.0/16")

    @cached_property
    def subnet(self) -> str:
        """A subnet of the VPC in the region's first zone."""
        return self._subnet("10.20.0.0/24", "a")

    @cached_property
    def other_subnet(self) -> str:
        """A subnet of the VPC in the region's second zone."""
        return self._subnet("10.20.1.0/24", "b")

    def _subnet(self, block: str, zone: str) -> str:
        place = f"{self.aws.region}{zone}"
        return self.made("create_subnet", "Subnet.SubnetId", VpcId=self.vpc, CidrBlock=block, AvailabilityZone=place)

    @cached_property
    def zone_id(self) -> str:
        """The id, the same in every account, of the region's first zone."""
        return str(self.aws.call("ec2", "describe_availability_zones")["AvailabilityZones"][0]["ZoneId"])

    @cached_property
    def table(self) -> str:
        """A route table of the VPC."""
        return self.made("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def other_table(self) -> str:
        """Another route table of the VPC."""
        return self.made("create_route_table", "RouteTable.RouteTableId", VpcId=self.vpc)

    @cached_property
    def gateway(self) -> str:
        """An internet gateway, attached to the VPC."""
        ident = self.made("create_internet_gateway", "InternetGateway.InternetGatewayId")
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
        return self.made("create_security_group", "GroupId", GroupName=name, Description=name, VpcId=self.vpc)

    @cached_property
    def address(self) -> str:
        """An elastic address that nothing uses."""
        return self.made("allocate_address", "AllocationId", Domain="vpc")

    @cached_property
    def interface(self) -> str:
        """A network interface in the subnet."""
        path = "NetworkInterface.NetworkInterfaceId"
        return self.made("create_network_interface", path, SubnetId=self.subnet, Groups=[self.group])

    @cached_property
    def prefixes(self) -> str:
        """A prefix list of one block."""
        return self.made(
            "create_managed_prefix_list",
            "PrefixList.PrefixListId",
            PrefixListName="sites",
            MaxEntries=5,
            AddressFamily="IPv4",
            Entries=[{"Cidr": "192.168.40.0/22"}],
        )

    @cached_property
    def vpn_gateway(self) -> str:
        """A virtual private gateway, attached to the VPC."""
        ident = self.made("create_vpn_gateway", "VpnGateway.VpnGatewayId", Type="ipsec.1", AmazonSideAsn=64600)
        self.aws.call("ec2", "attach_vpn_gateway", VpnGatewayId=ident, VpcId=self.vpc)
        return ident

    @cached_property
    def customer_gateway(self) -> str:
        """A customer gateway."""
        return self.made(
            "create_customer_gateway",
            "CustomerGateway.CustomerGatewayId",
            Type="ipsec.1",
            BgpAsn=65010,
            IpAddress="8.20.30.40",
        )

    @cached_property
    def hub(self) -> str:
        """A transit gateway."""
        return self.made("create_transit_gateway", "TransitGateway.TransitGatewayId")

    @cached_property
    def hub_table(self) -> str:
        """A route table of the transit gateway, in which nothing is."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.made("create_transit_gateway_route_table", path, TransitGatewayId=self.hub)

    @cached_property
    def plain_hub(self) -> str:
        """A transit gateway that puts nothing into tables by itself."""
        options = {"DefaultRouteTableAssociation": "disable", "DefaultRouteTablePropagation": "disable"}
        return self.made("create_transit_gateway", "TransitGateway.TransitGatewayId", Options=options)

    @cached_property
    def plain_table(self) -> str:
        """A route table of that gateway."""
        path = "TransitGatewayRouteTable.TransitGatewayRouteTableId"
        return self.made("create_transit_gateway_route_table", path, TransitGatewayId=self.plain_hub)

    @cached_property
    def attachment(self) -> str:
        """The VPC's attachment to that gateway."""
        path = "TransitGatewayVpcAttachment.TransitGatewayAttachmentId"
        ends = {"TransitGatewayId": self.plain_hub, "VpcId": self.vpc}
        return self.made("create_transit_gateway_vpc_attachment", path, SubnetIds=[self.subnet], **ends)

    @cached_property
    def abroad(self) -> "World":
        """A world in another region."""
        return World(self.aws.elsewhere("us-east-2"))

    @cached_property
    def hub_request(self) -> str:
        """A peering of transit gateways that the other region asks for."""
        path = "TransitGatewayPeeringAttachment.TransitGatewayAttachmentId"
        peer = {"PeerRegion": self.aws.region, "PeerAccountId": self.aws.account}
        ends = {"TransitGatewayId": self.abroad.plain_hub, "PeerTransitGatewayId": self.plain_hub}
        return self.abroad.made("create_transit_gateway_peering_attachment", path, **ends, **peer)

    @cached_property
    def role(self) -> str:
        """The ARN of a role that EC2 may take."""
        name = f"role-{self.vpc}"
        trust = json.dumps(TRUST)
        return self.made("create_role", "Role.Arn", "iam", RoleName=name, AssumeRolePolicyDocument=trust)

    @cached_property
    def peering(self) -> str:
        """A peering of the two VPCs, accepted."""
        ident = self.pending_peering
        self.aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
        return ident

    @cached_property
    def pending_peering(self) -> str:
        """A peering of the two VPCs that nobody has accepted yet."""
        path = "VpcPeeringConnection.VpcPeeringConnectionId"
        return self.made("create_vpc_peering_connection", path, VpcId=self.vpc, PeerVpcId=self.far_vpc)

    def service(self, name: str) -> str:
        """Return the name that endpoints give a service of AWS."""
        return f"com.amazonaws.{self.aws.region}.{name}"

    def born_with(self, operation: str, listing: str, ident: str) -> str:
        """Return the id of what the VPC has from its birth, as a describe call lists it."""
        ours = [{"Name": "vpc-id", "Values": [self.vpc]}]
        return str(self.aws.call("ec2", operation, Filters=ours)[listing][0][ident])


IMAGE = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_numbers = count(1)


def fresh(prefix: str) -> str:
    """Return a name that nobody has."""
    return f"{prefix}-{next(_numbers)}"


def document(action: str, resource: str = "*", **more: object) -> str:
    """Return a policy that allows one action."""
    statement = {"Effect": "Allow", "Action": action, "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def open_policy(action: str, resource: str = "*") -> str:
    """Return a policy on a resource that denies one action to everybody."""
    statement = {"Effect": "Deny", "Action": action, "Resource": resource, "Principal": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def key_policy(action: str) -> str:
    """Return a policy that leaves a key to its account, but for one action."""
    owner = {"AWS": "arn:aws:iam::111122223333:root"}
    kept = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": owner}
    return json.dumps({"Version": "2012-10-17", "Statement": [kept, *json.loads(open_policy(action))["Statement"]]})


def trust(**more: object) -> str:
    """Return a role's trust in EC2."""
    return json.dumps({**TRUST, **more})


def role_name(world: World) -> str:
    """Return the name of a role."""
    return world.role.rpartition("/")[2]


def managed_policy(world: World) -> str:
    """Make a policy; return its ARN."""
    call = {"PolicyName": fresh("policy"), "PolicyDocument": document("s3:GetObject")}
    return world.made("create_policy", "Policy.Arn", "iam", **call)


def profile(world: World) -> str:
    """Make an instance profile; return its name."""
    path = "InstanceProfile.InstanceProfileName"
    return world.made("create_instance_profile", path, "iam", InstanceProfileName=fresh("profile"))


def key(world: World, **params: object) -> str:
    """Make a KMS key; return its ARN."""
    return world.made("create_key", "KeyMetadata.Arn", "kms", **params)


def bucket(world: World) -> str:
    """Make a bucket; return its name."""
    name = fresh("bucket")
    place: Any = {"LocationConstraint": world.aws.region}
    world.aws.call("s3", "create_bucket", Bucket=name, CreateBucketConfiguration=place)
    return name


def file_system(world: World) -> str:
    """Make a file system; return its id."""
    return world.made("create_file_system", "FileSystemId", "efs", CreationToken=fresh("token"))


def zone(world: World) -> str:
    """Make a private zone of the world's VPC; return its id."""
    return world.made(
        "create_hosted_zone",
        "HostedZone.Id",
        "route53",
        Name=f"{fresh('lab')}.internal",
        CallerReference=fresh("call"),
        HostedZoneConfig={"Comment": "", "PrivateZone": True},
        VPC={"VPCRegion": world.aws.region, "VPCId": world.vpc},
    ).rpartition("/")[2]


def template(world: World, kind: str = "m7i.large", groups: list[str] | None = None) -> str:
    """Make a launch template, with the world's security group unless others are given; return its id."""
    wanted = [world.group] if groups is None else groups
    data = {"InstanceType": kind, "ImageId": IMAGE, "SecurityGroupIds": wanted}
    path, name = "LaunchTemplate.LaunchTemplateId", fresh("template")
    return world.made("create_launch_template", path, LaunchTemplateName=name, LaunchTemplateData=data)


def scaling_group(world: World) -> str:
    """Make an Auto Scaling group of no machines; return its name."""
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
    """Note a placement group, of which moto has no model; return its name."""
    name = fresh("placement")
    world.aws.fakes("aws:ec2/placementGroup:PlacementGroup")[f"{world.aws.region}/{name}"] = {}
    return name


def key_pair(world: World) -> str:
    """Make a key pair; return its name."""
    return world.made("create_key_pair", "KeyName", KeyName=fresh("pair"))


def image(world: World) -> str:
    """Return the id of an image that exists."""
    return str(world.aws.call("ec2", "describe_images", Owners=["099720109477"])["Images"][0]["ImageId"])


def secret(world: World) -> str:
    """Make a secret; return its ARN."""
    return world.made("create_secret", "ARN", "secretsmanager", Name=fresh("secret"))


def text(policy: object) -> str:
    """Return a policy that AWS gives as a mapping in the form of the texts above."""
    return json.dumps(policy)


# Inputs as they are, or as a world gives them the ids that they name.
Given = dict[str, Any] | Callable[[World], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Specimen:
    """One kind in one form; a kind may have several."""

    token: str
    form: str = field(default="", kw_only=True)
    inputs: Given = field(kw_only=True)
    changes: Given = field(default_factory=dict, kw_only=True)
    """New values of inputs that change in place, tried one after another in this order."""
    told: Told = field(kw_only=True)
    silent: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Inputs on which AWS, or moto, is silent: they are told by nothing but the outputs."""
    adopted: bool = field(default=False, kw_only=True)
    """Whether it takes over, or changes, what stays when it is deleted."""

    def __str__(self) -> str:
        word = self.token.rpartition(":")[2]
        return f"{word} {self.form}".strip()

    def inputs_in(self, world: World) -> dict[str, Any]:
        """Return the inputs that a program would give in a world."""
        return self.inputs(world) if callable(self.inputs) else self.inputs

    def changes_in(self, world: World) -> dict[str, Any]:
        """Return the changes that a program would make in a world."""
        return self.changes(world) if callable(self.changes) else self.changes
