"""Repairs of moto, the AWS simulator: each replaces a method of moto while a simulation runs.

`repaired` applies all repairs: launch templates, instances, subnets, NAT gateways, scheduled actions, transit gateways,
buckets and the resolver. `load_for_call` loads the AMIs of AWS when a call asks for them.
`failing_launches` implements the fault no-capacity. Each repair names the behaviour of moto that it corrects.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any, Final
from unittest.mock import patch

from moto.autoscaling.models import Activity, AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core import responses
from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.ec2.models import ec2_backends, nat_gateways
from moto.ec2.models.amis import Ami
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.subnets import SubnetBackend
from moto.ec2.models.transit_gateway import TransitGatewayBackend
from moto.ec2.models.transit_gateway_attachments import TransitGatewayAttachmentBackend
from moto.ec2.models.transit_gateway_route_tables import TransitGatewayRelations, TransitGatewayRouteTableBackend
from moto.ec2.models.vpn_connections import VPNConnectionBackend
from moto.iam.access_control import PermissionResult
from moto.kms import models as kms_models
from moto.route53resolver.models import ResolverEndpoint
from moto.route53resolver.responses import Route53ResolverResponse
from moto.s3.models import FakeBucket

from bedplate.rehearsal import environment
from bedplate.rehearsal.faults import Faults, Shortage

Method = Callable[..., Any]
# moto combines a backend from many classes.
Backend = Any


def wrapped(owner: type, name: str, repair: Method) -> AbstractContextManager[object]:
    """Call `repair` in a context instead of a method, with the method as its first argument."""
    method = getattr(owner, name)

    def repaired_method(*args: object, **params: object) -> object:
        return repair(method, *args, **params)

    return patch.object(owner, name, repaired_method)


def _cached(module: ModuleType, name: str) -> AbstractContextManager[object]:
    return patch.object(module, name, cache(getattr(module, name)))


@contextmanager
def repaired() -> Iterator[None]:
    """Apply all repairs of moto in this context."""
    with ExitStack() as repairs:
        repairs.enter_context(wrapped(LaunchTemplate, "create_version", _decode_user_data))
        repairs.enter_context(wrapped(Instance, "terminate", _detach_interfaces))
        repairs.enter_context(wrapped(SubnetBackend, "delete_subnet", _remove_acl_association))
        # Without an address moto chooses one of the subnet: it gives NAT gateways a random address otherwise.
        repairs.enter_context(patch.object(nat_gateways, "random_private_ip", lambda: ""))
        repairs.enter_context(wrapped(AutoScalingBackend, "put_scheduled_update_group_action", _key_by_group))
        repairs.enter_context(wrapped(AutoScalingBackend, "delete_scheduled_action", _delete_by_group))
        repairs.enter_context(_cached(responses, "method_names_from_class"))
        repairs.enter_context(_cached(kms_models, "generate_private_key"))
        repairs.enter_context(patch.object(ResolverEndpoint, "MAX_ENDPOINTS_PER_REGION", _MAX_ENDPOINTS))
        repairs.enter_context(patch.object(Route53ResolverResponse, "update_resolver_rule", _update_rule, create=True))
        # moto ignores the conditions of a policy, so a statement against requests without TLS denies all.
        repairs.enter_context(patch.object(FakeBucket, "get_permission", lambda *_: PermissionResult.NEUTRAL))
        for (owner, name), repair in _TRANSIT_REPAIRS.items():
            repairs.enter_context(wrapped(owner, name, repair))
        yield


# EC2 and Auto Scaling

_PRIMARY_INTERFACE = "Primary network interface"


def _decode_user_data(
    create_version: Method, template: LaunchTemplate, data: dict[str, Any], description: str
) -> object:
    """Decode the user data of each launch template version: moto decodes that of the first version only."""
    user_data = data.get("UserData")
    decoded = {**data, "UserData": Base64EncodedString(user_data)} if isinstance(user_data, str) else data
    return create_version(template, decoded, description)


def _detach_interfaces(terminate: Method, instance: Instance) -> object:
    """Delete the primary interface of a terminated instance and detach the others: moto keeps all attached."""
    for interface in instance.nics.values():
        if interface.description == _PRIMARY_INTERFACE:
            interface.delete_on_termination = True
    state = terminate(instance)
    for interface in instance.nics.values():
        # They stay in `nics` because describe_instances still returns them.
        interface.instance = interface.attachment_id = interface.attach_time = interface.device_index = None
        interface.status = "available"
    return state


def _remove_acl_association(delete_subnet: Method, backend: Backend, subnet_id: str) -> object:
    """Remove the network ACL association of a deleted subnet: moto keeps it, and the ACL cannot be deleted."""
    deleted = delete_subnet(backend, subnet_id)
    for acl in backend.network_acls.values():
        for key, association in list(acl._associations.items()):  # noqa: SLF001  # moto has no public accessor
            if association.subnet_id == subnet_id:
                del acl._associations[key]  # noqa: SLF001
    return deleted


def _key_by_group(
    put: Method, backend: AutoScalingBackend, *, name: str, scheduled_action_name: str, **more: object
) -> object:
    """Store a scheduled action by group and name: moto stores by name, so groups overwrite each other's actions."""
    action = put(backend, name=name, scheduled_action_name=scheduled_action_name, **more)
    actions = backend.scheduled_actions
    actions[f"{name}:{scheduled_action_name}"] = actions.pop(scheduled_action_name)
    return action


def _delete_by_group(
    delete: Method, backend: AutoScalingBackend, *, auto_scaling_group_name: str, scheduled_action_name: str
) -> None:
    """Delete a scheduled action by group and name, as `_key_by_group` stores it."""
    delete(backend, auto_scaling_group_name, scheduled_action_name)
    backend.scheduled_actions.pop(f"{auto_scaling_group_name}:{scheduled_action_name}", None)


# Route 53 Resolver

# moto counts all endpoints ever created in an account; `quotas` counts the existing ones.
_MAX_ENDPOINTS = 1_000_000
_RULE_FIELDS = {"Name": "name", "ResolverEndpointId": "resolver_endpoint_id", "TargetIps": "target_ips"}


def _update_rule(response: Any) -> str:  # noqa: ANN401
    """Implement UpdateResolverRule, which moto lacks; fields that the call leaves out do not change."""
    rule = response.route53resolver_backend.get_resolver_rule(response._get_param("ResolverRuleId"))  # noqa: SLF001
    config = response._get_param("Config")  # noqa: SLF001  # moto has no public accessor
    for key in config.keys() & _RULE_FIELDS.keys():
        setattr(rule, _RULE_FIELDS[key], config[key])
    return json.dumps({"ResolverRule": rule.description()})


# Transit gateways

_ENABLED = "enable"
_FILTERS = {"type": "type", "state": "state", "route-search.exact-match": "destinationCidrBlock"}


def _search_routes(
    _search: Method,
    backend: Backend,
    transit_gateway_route_table_id: str,
    filters: Any,  # noqa: ANN401
    max_results: Any = None,  # noqa: ANN401
) -> object:
    """Search static and propagated routes: moto's search omits attachments and knows no propagation."""
    table = backend.transit_gateways_route_tables.get(transit_gateway_route_table_id)
    routes = [*_static_routes(backend, table), *_propagated_routes(backend, table)] if table else []
    matching = [route for route in routes if _passes(route, filters or {})]
    return matching[: int(max_results)] if max_results else matching


def _store_attachments(create: Method, backend: Backend, **params: Any) -> object:  # noqa: ANN401
    """Store the attachment of a route in the form that a search returns."""
    route: dict[str, Any] = create(backend, **params)
    route["transitGatewayAttachments"] = _attachments(backend, params.get("transit_gateway_attachment_id"))
    return route


def _attachments(backend: Backend, ident: str | None) -> list[dict[str, str]]:
    if not ident:
        return []
    attachment = backend.transit_gateway_attachments[ident]
    resource = {"resourceId": attachment.resource_id, "resourceType": attachment.resource_type}
    return [{**resource, "transitGatewayAttachmentId": ident}]


def _static_routes(backend: Backend, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for route in table.routes.values():
        idents = [attachment["transitGatewayAttachmentId"] for attachment in route["transitGatewayAttachments"]]
        is_active = any(_is_available(backend, ident) for ident in idents)
        yield {**route, "state": "active" if is_active else "blackhole"}


def _propagated_routes(backend: Backend, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for propagation in table.route_table_propagation:
        ident = propagation.transitGatewayAttachmentId
        if propagation.resourceType == "vpc" and _is_available(backend, ident):
            yield {
                "destinationCidrBlock": backend.vpcs[propagation.resourceId].cidr_block,
                "type": "propagated",
                "state": "active",
                "transitGatewayAttachments": _attachments(backend, ident),
            }


def _is_available(backend: Backend, ident: str) -> bool:
    attachment = backend.transit_gateway_attachments.get(ident)
    return attachment is not None and attachment.state == "available"


def _passes(route: dict[str, Any], filters: dict[str, list[str]]) -> bool:
    return all(route[key] in filters[name] for name, key in _FILTERS.items() if filters.get(name))


def _attach(create: Method, backend: Backend, transit_gateway_id: str, **more: Any) -> object:  # noqa: ANN401
    """Allow to attach a VPC again after a detach, and put the attachment into the default route tables."""
    for ident, old in list(backend.transit_gateway_attachments.items()):
        if (old.state, old.resource_id, old.transit_gateway_id) == ("deleted", more.get("vpc_id"), transit_gateway_id):
            del backend.transit_gateway_attachments[ident]
    attachment = create(backend, transit_gateway_id=transit_gateway_id, **more)
    _remove_from_tables(backend, attachment.id)
    gateway = backend.transit_gateways[attachment.transit_gateway_id]
    attachment.transit_gateway_route_table = None
    if gateway.options["DefaultRouteTableAssociation"] == _ENABLED:
        attachment.transit_gateway_route_table = gateway.default_route_table
        backend.associate_transit_gateway_route_table(attachment.id, gateway.default_route_table.id)
    if gateway.options["DefaultRouteTablePropagation"] == _ENABLED:
        backend.enable_transit_gateway_route_table_propagation(attachment.id, gateway.default_route_table.id)
    return attachment


def _remove_from_tables(backend: Backend, ident: str) -> None:
    """Remove an attachment from all route tables of a region."""
    for table in backend.transit_gateways_route_tables.values():
        table.route_table_associations.pop(ident, None)
        table.route_table_propagation = [
            propagation
            for propagation in table.route_table_propagation
            if propagation.transitGatewayAttachmentId != ident
        ]
    backend.transit_gateway_associations.pop(ident, None)
    backend.transit_gateway_propagations.pop(ident, None)


def _delete_attachment(delete: Method, backend: Backend, transit_gateway_attachment_id: str) -> object:
    """Remove a deleted attachment from the route tables, those of both regions of a peering.

    It keeps the state deleted: the provider waits for this state, and moto forgets the attachment of a VPC.
    """
    attachment = delete(backend, transit_gateway_attachment_id=transit_gateway_attachment_id)
    for region in type(backend)._get_peering_attachment_backend_refs():  # noqa: SLF001  # moto has no public accessor
        _remove_from_tables(region, attachment.id)
    backend.transit_gateway_attachments[attachment.id] = attachment
    return attachment


def _delete_vpn(delete: Method, backend: Backend, vpn_connection_id: str) -> object:
    """Remove the attachment of a deleted VPN connection from all route tables."""
    for ident, attachment in backend.transit_gateway_attachments.items():
        if attachment.resource_id == vpn_connection_id:
            _remove_from_tables(backend, ident)
    return delete(backend, vpn_connection_id)


def _disable_propagation(
    disable: Method, backend: Backend, transit_gateway_attachment_id: str, transit_gateway_route_table_id: str
) -> object:
    """Allow to disable one of several propagations of an attachment: moto stores only one."""
    pair = (transit_gateway_attachment_id, transit_gateway_route_table_id)
    propagations = backend.transit_gateway_propagations
    propagations.setdefault(pair[0], TransitGatewayRelations(backend, *pair, state="enabled"))
    return disable(backend, *pair)


def _delete_tables(delete: Method, backend: Backend, transit_gateway_id: str) -> object:
    """Delete the route tables of a deleted transit gateway."""
    deleted = delete(backend, transit_gateway_id)
    for table in backend.transit_gateways_route_tables.values():
        if table.transit_gateway_id == transit_gateway_id:
            table.state = "deleted"
    return deleted


_ATTACHMENTS, _TABLES = TransitGatewayAttachmentBackend, TransitGatewayRouteTableBackend
_TRANSIT_REPAIRS: Mapping[tuple[type, str], Method] = MappingProxyType(
    {
        (_ATTACHMENTS, "create_transit_gateway_vpc_attachment"): _attach,
        (_ATTACHMENTS, "create_transit_gateway_vpn_attachment"): _attach,
        (_ATTACHMENTS, "delete_transit_gateway_vpc_attachment"): _delete_attachment,
        (_ATTACHMENTS, "delete_transit_gateway_peering_attachment"): _delete_attachment,
        (VPNConnectionBackend, "delete_vpn_connection"): _delete_vpn,
        (_TABLES, "create_transit_gateway_route"): _store_attachments,
        (_TABLES, "search_transit_gateway_routes"): _search_routes,
        (_TABLES, "disable_transit_gateway_route_table_propagation"): _disable_propagation,
        (TransitGatewayBackend, "delete_transit_gateway"): _delete_tables,
    }
)


# Machine images

_LOAD_AMIS: Final = "MOTO_EC2_LOAD_DEFAULT_AMIS"
_AMAZON: Final = "amazon"


def no_preloaded_images() -> AbstractContextManager[None]:
    """Prevent in a context that moto loads its list of public AMIs for each region, which is slow."""
    return environment({_LOAD_AMIS: "false"})


def load_for_call(account: str, region: str, operation: str, params: Mapping[str, Any]) -> None:
    """Load the AMIs that a call names."""
    if operation == "describe_images":
        _load_amis(account, region, params.get("ImageIds") or [])


def add_images(account: str, images: Mapping[str, str]) -> None:
    """Add AMIs that belong to an account: their ids by region and a word with the architecture (`us-west-2/arm64`)."""
    for place, ident in images.items():
        region, _, kind = place.partition("/")
        arch = "arm64" if "arm64" in kind else "x86_64"
        backend = ec2_backends[account][region]
        if ident not in backend.amis:
            image = Ami(backend, ident, owner_id=account, name=ident, architecture=arch, root_device_type="ebs")
            backend.amis[ident] = image


def has_image(account: str, region: str, ident: str) -> bool:
    """Return whether an AMI exists: one of AWS, or of the account."""
    _load_amis(account, region, [ident])
    return ident in ec2_backends[account][region].amis


def _load_amis(account: str, region: str, idents: Collection[str]) -> None:
    backend = ec2_backends[account][region]
    are_present = bool(idents) and all(ident in backend.amis for ident in idents)
    if not are_present and not any(image.owner_alias == _AMAZON for image in backend.amis.values()):
        with environment({_LOAD_AMIS: "true"}):
            backend._load_amis()  # noqa: SLF001  # the constructor would have called this


# Injected faults


@contextmanager
def failing_launches(faults: Faults) -> Iterator[None]:
    """Fail the launches of Auto Scaling groups if no zone has capacity for them."""
    failed: list[tuple[str, Activity]] = []

    def launch_or_fail(
        launch: Method, group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]
    ) -> None:
        types = _instance_types(group)
        if _is_reserved(group) or not faults.lacks_capacity(types, group.availability_zones):
            _spread_launch(launch, group, count_needed, propagated_tags)
            return
        region, running = group.autoscaling_backend.region_name, len(group.active_instances())
        shortage = Shortage(group.name, region, desired=running + count_needed, running=running)
        faults.shortages[region, group.name] = shortage
        failed.append((region, _activity(group, types)))

    def activities(response: AutoScalingResponse) -> ActionResult:
        name = response._get_param("AutoScalingGroupName")  # noqa: SLF001  # moto has no public accessor
        activities_of_group = [
            activity
            for region, activity in failed
            if region == response.region and name in (None, activity.auto_scaling_group_name)
        ]
        return ActionResult({"Activities": activities_of_group[::-1]})

    with (
        wrapped(FakeAutoScalingGroup, "replace_autoscaling_group_instances", launch_or_fail),
        patch.object(AutoScalingResponse, "describe_scaling_activities", activities),
    ):
        yield


def _spread_launch(launch: Method, group: FakeAutoScalingGroup, count: int, propagated_tags: dict[str, str]) -> None:
    """Launch each instance in the subnet with the fewest instances of the group; moto uses the first subnet."""
    subnets = group.vpc_zone_identifier
    for _ in range(count):
        used = Counter(state.instance.subnet_id for state in group.instance_states)
        group.vpc_zone_identifier = min(subnets.split(","), key=lambda subnet: used[subnet]) if subnets else subnets
        launch(group, 1, propagated_tags)
    group.vpc_zone_identifier = subnets


def _instance_types(group: FakeAutoScalingGroup) -> list[str]:
    """Return the instance types that a group may start; an empty name for attribute-based selection."""
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or []
    return [override.get("InstanceType", "") for override in overrides] or [group.instance_type]


def _is_reserved(group: FakeAutoScalingGroup) -> bool:
    """Return whether the group's instances start in a capacity reservation."""
    template = group.ec2_launch_template
    data = template.get_version(group.launch_template_version).data if template else {}
    return bool((data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget"))


def _activity(group: FakeAutoScalingGroup, types: list[str]) -> Activity:
    """Return the activity of a failed launch; the text is that of the EC2 Auto Scaling user guide."""
    message = (
        f"We currently do not have sufficient {', '.join(types)} capacity in the Availability Zone you requested "
        f"({', '.join(sorted(group.availability_zones))}). Launching EC2 instance failed."
    )
    cause = "an instance was started in response to a difference between desired and actual capacity"
    activity = Activity(f"Launching a new EC2 instance. Status Reason: {message}", cause, group, status_code="Failed")
    activity.progress = 100
    activity.status_message = message  # type: ignore[attr-defined]  # an output that moto never sets
    return activity
