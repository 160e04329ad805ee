"""Converts stack resources to a Terraform plan in JSON, which policy tools such as checkov and conftest read.

Pulumi's AWS provider is generated from Terraform's. Most names follow from Pulumi's: the module, and the words in
snake_case. The tables contain the exceptions.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bedplate.foreign import parse_json

_NEXT_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Prefixes of Terraform's type names that differ from the name of the module.
_PREFIXES: Final[Mapping[str, str]] = {"ec2": "", "ec2transitgateway": "ec2_transit_gateway_"}

# Source of both tables: the resources' pages in the documentation of Terraform's AWS provider 6, seen on 2026-11-21.
_TYPES: Final[Mapping[str, str]] = {
    "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions": "aws_vpc_peering_connection_options",
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": "aws_ec2_subnet_cidr_reservation",
    "aws:ec2transitgateway/transitGateway:TransitGateway": "aws_ec2_transit_gateway",
    "aws:s3/bucketObjectv2:BucketObjectv2": "aws_s3_object",
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": "aws_s3_bucket_replication_configuration",
}

# By Terraform's type and the path of the property in Pulumi's names. Pulumi uses plurals for repeated blocks.
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "aws_autoscaling_group": {
        "initialLifecycleHooks": "initial_lifecycle_hook",
        "mixedInstancesPolicy.launchTemplate.overrides": "override",
        "tags": "tag",
        "trafficSources": "traffic_source",
        "vpcZoneIdentifiers": "vpc_zone_identifier",
    },
    "aws_budgets_budget": {
        "costFilters": "cost_filter",
        "notifications": "notification",
        "plannedLimits": "planned_limit",
    },
    "aws_cloudwatch_metric_alarm": {"metricQueries": "metric_query", "name": "alarm_name"},
    "aws_default_route_table": {"routes": "route"},
    "aws_efs_file_system": {"lifecyclePolicies": "lifecycle_policy"},
    "aws_iam_role": {"inlinePolicies": "inline_policy"},
    "aws_launch_template": {"licenseSpecifications": "license_specification"},
    "aws_nat_gateway": {"availabilityZoneAddresses": "availability_zone_address"},
    "aws_network_interface": {
        "attachments": "attachment",
        "ipv6AddressLists": "ipv6_address_list",
        "privateIpLists": "private_ip_list",
    },
    "aws_route53_record": {
        "aliases": "alias",
        "failoverRoutingPolicies": "failover_routing_policy",
        "geolocationRoutingPolicies": "geolocation_routing_policy",
        "latencyRoutingPolicies": "latency_routing_policy",
        "weightedRoutingPolicies": "weighted_routing_policy",
    },
    "aws_route53_resolver_endpoint": {"ipAddresses": "ip_address"},
    "aws_route53_resolver_rule": {"targetIps": "target_ip"},
    "aws_route53_zone": {"vpcs": "vpc"},
    "aws_route_table": {"routes": "route"},
    "aws_s3_bucket": {
        "corsRules": "cors_rule",
        "grants": "grant",
        "lifecycleRules": "lifecycle_rule",
        "lifecycleRules.noncurrentVersionTransitions": "noncurrent_version_transition",
        "lifecycleRules.transitions": "transition",
    },
    "aws_s3_bucket_lifecycle_configuration": {
        "rules": "rule",
        "rules.noncurrentVersionTransitions": "noncurrent_version_transition",
        "rules.transitions": "transition",
    },
    "aws_s3_bucket_replication_configuration": {"rules": "rule"},
    "aws_s3_bucket_server_side_encryption_configuration": {"rules": "rule"},
    "aws_secretsmanager_secret": {"replicas": "replica"},
    "aws_sns_topic_subscription": {"topic": "topic_arn"},
    "aws_vpc_endpoint": {"subnetConfigurations": "subnet_configuration"},
}


def terraform_type(token: str) -> str:
    """Return Terraform's name of a type: `aws_vpc` for `aws:ec2/vpc:Vpc`."""
    if token in _TYPES:
        return _TYPES[token]
    _, module, name = token.split(":")
    module = module.partition("/")[0]
    return f"aws_{_PREFIXES.get(module, f'{module}_')}{_snake(name)}"


def terraform_property(kind: str, path: str) -> str:
    """Return Terraform's name of the last property in a path such as `rules.transitions`, for a Terraform type."""
    return RENAMED.get(kind, {}).get(path) or _snake(path.rpartition(".")[2])


def _snake(name: str) -> str:
    return _NEXT_WORD.sub("_", name).lower()


Values = Mapping[str, object]

# Characters that are invalid in Terraform names.
_INVALID: Final = re.compile(r"[^A-Za-z0-9_-]+")
PROVIDER: Final = "pulumi:providers:aws"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An AWS resource; `name` is unique among the resources of its type in all stacks."""

    kind: str
    name: str
    urn: str
    ident: str
    inputs: Values
    outputs: Values
    on: Mapping[str, tuple[str, ...]]
    """URNs of the resources that each property depends on."""
    provider: str

    @property
    def address(self) -> str:
        """The address in Terraform, such as `aws_vpc.lab_main`."""
        return f"{self.kind}.{self.name}"


def resources(graph: Iterable[Values]) -> tuple[Resource, ...]:
    """Return the AWS resources of a graph, without components, providers and resources that are only read."""
    nodes = [node for node in graph if node["custom"] and not node["external"] and str(node["type"]).startswith("aws:")]
    taken = Counter(_short(node) for node in nodes)
    return tuple(_resource(node, _short(node) if taken[_short(node)] == 1 else _long(node)) for node in nodes)


def _short(node: Values) -> tuple[str, str]:
    """Return the Terraform type and name of a resource: its stack and its name."""
    stack = str(node["urn"]).split(":")[2]
    return terraform_type(str(node["type"])), valid_name(f"{stack}_{node['name']}")


def _long(node: Values) -> tuple[str, str]:
    """Return the Terraform type and a longer name with the types of the parents, where the short one is ambiguous."""
    _, _, stack, _, _, _, types = str(node["urn"]).rpartition("::")[0].split(":", 6)
    return terraform_type(str(node["type"])), valid_name(f"{stack}_{types.rpartition('$')[0]}_{node['name']}")


def _resource(node: Values, type_and_name: tuple[str, str]) -> Resource:
    return Resource(
        kind=type_and_name[0],
        name=type_and_name[1],
        urn=str(node["urn"]),
        ident=str(node["id"]),
        inputs=_mapping(node["inputs"]),
        outputs=_mapping(node["outputs"]),
        on={key: tuple(map(str, _list(urns))) for key, urns in _mapping(node["property_dependencies"]).items()},
        # The value is URN::id.
        provider=str(node["provider"]).rpartition("::")[0],
    )


def valid_name(name: str) -> str:
    """Return the name with invalid characters replaced by underscores."""
    return _INVALID.sub("_", name)


def _mapping(value: object) -> Values:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()


@dataclass(frozen=True, slots=True)
class Index:
    """The resources of a plan by URN, and by the ids in properties of other resources."""

    urns: Mapping[str, Resource]
    idents: Mapping[str, Resource]
    buckets: Mapping[str, Resource]


def index(resources: tuple[Resource, ...]) -> Index:
    """Return the index. Names that the operator chose are not unique, so they do not count as ids."""
    idents = {ident: resource for resource in resources for ident in _assigned_ids(resource)}
    buckets = {resource.ident: resource for resource in resources if resource.kind == "aws_s3_bucket"}
    return Index({resource.urn: resource for resource in resources}, idents, buckets)


def expressions(resource: Resource, resource_index: Index) -> dict[str, object]:
    """Return the references of each property. References inside a block are listed for the whole block."""
    references = {key: _references(resource, key, resource_index) for key in resource.inputs}
    return {terraform_property(resource.kind, key): {"references": names} for key, names in references.items() if names}


def _assigned_ids(resource: Resource) -> set[str]:
    """Return the ids that AWS assigned."""
    return {resource.ident, str(resource.outputs.get("arn") or "")} - set(_words(resource.inputs)) - {""}


def _references(resource: Resource, key: str, resource_index: Index) -> list[str]:
    """Return the references of a property: its dependencies, and across stacks the resources whose ids it contains."""
    words = tuple(_words(resource.inputs[key]))
    dependencies = [resource_index.urns[urn] for urn in resource.on.get(key, ()) if urn in resource_index.urns]
    named = [resource_index.idents[word] for word in words if word in resource_index.idents]
    if key == "bucket":
        named += [resource_index.buckets[word] for word in words if word in resource_index.buckets]
    targets = {target.address: target for target in (*dependencies, *named) if target is not resource}
    return [name for target in targets.values() for name in _names(target, words)]


def _names(target: Resource, words: tuple[str, ...]) -> Iterator[str]:
    """Yield the attributes of a resource that match a value, then the resource, in Terraform's order."""
    outputs = {"id": target.ident, **target.outputs}
    for key, value in outputs.items():
        if value and value in words:
            yield f"{target.address}.{terraform_property(target.kind, key)}"
    yield target.address


def _words(value: object) -> Iterator[str]:
    """Yield every string in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)


# Objects with free keys. Any other object is a block, which Terraform writes as a list with one item.
MAPS: Final = frozenset({"dimensions", "metadata", "parameters", "tags", "tagsAll", "volumeTags"})
# Objects that Terraform stores as JSON text.
TEXTS: Final = frozenset({"assumeRolePolicy", "policy"})


def planned(resource: Resource) -> dict[str, object]:
    """Return the planned values of a resource: inputs, region and tags, including the provider's default tags."""
    output_values = {"region": resource.outputs.get("region"), "tagsAll": resource.outputs.get("tagsAll")}
    values = {**{key: value for key, value in output_values.items() if value is not None}, **resource.inputs}
    return _object(resource.kind, values, "")


def unknown(resource: Resource) -> dict[str, object]:
    """Return the properties that are unknown before creation, each with the value true."""
    keys = {*resource.outputs, "id"} - resource.inputs.keys() - {"region", "tagsAll"}
    return {terraform_property(resource.kind, key): True for key in sorted(keys)}


def _object(kind: str, values: Values, path: str) -> dict[str, object]:
    return {
        terraform_property(kind, f"{path}{key}"): _value(kind, value, f"{path}{key}") for key, value in values.items()
    }


def _value(kind: str, value: object, path: str) -> object:
    key = path.rpartition(".")[2]
    if isinstance(value, Mapping):
        if key in TEXTS:
            return json.dumps(value)
        return dict(value) if key in MAPS else [_object(kind, value, f"{path}.")]
    if isinstance(value, list | tuple):
        return [_object(kind, item, f"{path}.") if isinstance(item, Mapping) else item for item in value]
    return value


FORMAT: Final = "1.2"
# Policy tools require a version and ignore its value.
TERRAFORM: Final = "1.9.0"
_SOURCE: Final = "registry.terraform.io/hashicorp/aws"


def plan_document(graph: Sequence[Values]) -> dict[str, object]:
    """Return the plan that creates every resource of a graph. Names begin with the name of the stack."""
    planned_resources = resources(graph)
    resource_index = index(planned_resources)
    return {
        "format_version": FORMAT,
        "terraform_version": TERRAFORM,
        "planned_values": {"root_module": {"resources": [_planned(resource) for resource in planned_resources]}},
        "resource_changes": [_change(resource) for resource in planned_resources],
        "configuration": {
            "provider_config": dict(_providers(graph)),
            "root_module": {"resources": [_configured(resource, resource_index) for resource in planned_resources]},
        },
    }


def _head(resource: Resource) -> dict[str, object]:
    return {"address": resource.address, "mode": "managed", "type": resource.kind, "name": resource.name}


def _planned(resource: Resource) -> dict[str, object]:
    values = planned(resource)
    return {**_head(resource), "provider_name": _SOURCE, "schema_version": 0, "values": values}


def _change(resource: Resource) -> dict[str, object]:
    change = {
        "actions": ["create"],
        "before": None,
        "after": planned(resource),
        "after_unknown": unknown(resource),
        "before_sensitive": False,
        "after_sensitive": {},
    }
    return {**_head(resource), "provider_name": _SOURCE, "change": change}


def _configured(resource: Resource, resource_index: Index) -> dict[str, object]:
    return {
        **_head(resource),
        "provider_config_key": _key(resource.provider),
        "expressions": expressions(resource, resource_index),
        "schema_version": 0,
    }


def _providers(graph: Iterable[Values]) -> Iterable[tuple[str, dict[str, object]]]:
    for node in graph:
        if node["type"] == PROVIDER:
            urn = str(node["urn"])
            alias = _key(urn).partition(".")[2]
            yield (
                _key(urn),
                {"name": "aws", "full_name": _SOURCE, "alias": alias, "expressions": _constants(node["inputs"])},
            )


def _key(urn: str) -> str:
    """Return the key of a provider, such as `aws.lab_links_us-east-1`; `aws` is the default provider."""
    if not urn:
        return "aws"
    parts = urn.split(":")
    return f"aws.{valid_name(f'{parts[2]}_{parts[-1]}')}"


def _constants(inputs: object) -> dict[str, object]:
    """Return the settings of a provider. Pulumi encodes values other than strings as JSON."""
    values = inputs if isinstance(inputs, dict) else {}
    return {
        terraform_property("", key): {"constant_value": _decoded(value)}
        for key, value in values.items()
        if key != "version"
    }


def _decoded(value: object) -> object:
    try:
        return parse_json(value) if isinstance(value, str) else value
    except ValueError:
        return value
