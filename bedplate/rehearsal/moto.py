"""Parts of somebody else's class or module, replaced or added for a while."""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any, Final

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
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, iam_backends
from moto.route53resolver.models import ResolverEndpoint
from moto.route53resolver.responses import Route53ResolverResponse

from bedplate.rehearsal.faults import Faults, Shortage

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def replaced(owner: type | ModuleType, name: str, value: object) -> Iterator[None]:
    """Put a value, or a method, in its place, or where there was none; put all back at the end."""
    before = vars(owner).get(name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def wrapped(owner: type | ModuleType, name: str, wrap: Wrap) -> Iterator[None]:
    """Put what `wrap` makes of a method in its place; put the method back at the end."""
    with replaced(owner, name, wrap(getattr(owner, name))):
        yield


# moto counts its endpoints wrongly, and in all of an account's simulated life; `quotas` counts what a stack holds.
_MOST_ENDPOINTS = 1_000_000
_CHANGES = {"Name": "name", "ResolverEndpointId": "resolver_endpoint_id", "TargetIps": "target_ips"}


@contextmanager
def mended_resolver() -> Iterator[None]:
    """Mend moto's resolver; put everything back as it was at the end."""
    with ExitStack() as repairs:
        repairs.enter_context(replaced(ResolverEndpoint, "MAX_ENDPOINTS_PER_REGION", _MOST_ENDPOINTS))
        repairs.enter_context(replaced(Route53ResolverResponse, "update_resolver_rule", _update_rule))
        yield


def _update_rule(response: Any) -> str:  # noqa: ANN401  # moto's own
    """Answer UpdateResolverRule, which moto lacks: what the call leaves out stays."""
    rule = response.route53resolver_backend.get_resolver_rule(response._get_param("ResolverRuleId"))  # noqa: SLF001
    config = response._get_param("Config")  # noqa: SLF001  # moto's way to a parameter
    for key in config.keys() & _CHANGES.keys():
        setattr(rule, _CHANGES[key], config[key])
    return json.dumps({"ResolverRule": rule.description()})


_FILTERS = {"type": "type", "state": "state", "route-search.exact-match": "destinationCidrBlock"}


def telling_routes(_search: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands in for moto's search, which forgets attachments and knows no propagation."""

    def searched(backend: Any, transit_gateway_route_table_id: str, filters: Any, max_results: Any = None) -> object:  # noqa: ANN401  # one of moto's mixed classes
        table = backend.transit_gateways_route_tables.get(transit_gateway_route_table_id)
        every = [*_static(backend, table), *_learnt(backend, table)] if table else []
        found = [each for each in every if _passes(each, filters or {})]
        return found[: int(max_results)] if max_results else found

    return searched


def keeping_attachments(create: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the attachment of a route in the form that a search can tell."""

    def created(backend: Any, **given: Any) -> object:  # noqa: ANN401
        route: dict[str, Any] = create(backend, **given)
        route["transitGatewayAttachments"] = _ends(backend, given.get("transit_gateway_attachment_id"))
        return route

    return created


def _ends(backend: Any, attachment: str | None) -> list[dict[str, str]]:  # noqa: ANN401
    if not attachment:
        return []
    found = backend.transit_gateway_attachments[attachment]
    end = {"resourceId": found.resource_id, "resourceType": found.resource_type}
    return [{**end, "transitGatewayAttachmentId": attachment}]


def _static(backend: Any, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for route in table.routes.values():
        ends = [end["transitGatewayAttachmentId"] for end in route["transitGatewayAttachments"]]
        lives = any(_is_live(backend, ident) for ident in ends)
        yield {**route, "state": "active" if lives else "blackhole"}


def _learnt(backend: Any, table: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for each in table.route_table_propagation:
        ident = each.transitGatewayAttachmentId
        if each.resourceType == "vpc" and _is_live(backend, ident):
            block = backend.vpcs[each.resourceId].cidr_block
            told = {"destinationCidrBlock": block, "type": "propagated", "state": "active"}
            yield {**told, "transitGatewayAttachments": _ends(backend, ident)}


def _is_live(backend: Any, ident: str) -> bool:  # noqa: ANN401
    found = backend.transit_gateway_attachments.get(ident)
    return found is not None and found.state == "available"


def _passes(route: dict[str, Any], filters: dict[str, list[str]]) -> bool:
    return all(route[key] in filters[name] for name, key in _FILTERS.items() if filters.get(name))


_ENABLED = "enable"


@contextmanager
def mended_transit() -> Iterator[None]:
    """Mend moto's transit gateways; put everything back as it was at the end."""
    with ExitStack() as repairs:
        for (owner, name), repair in _REPAIRS.items():
            repairs.enter_context(wrapped(owner, name, repair))
        yield


def _settling_network(create: Callable[..., Any]) -> Callable[..., Any]:
    """Let a VPC be attached again after it was, and put the attachment into its default tables."""

    def created(backend: Any, transit_gateway_id: str, vpc_id: str, **more: Any) -> object:  # noqa: ANN401
        for ident, old in list(backend.transit_gateway_attachments.items()):
            if (old.state, old.resource_id, old.transit_gateway_id) == ("deleted", vpc_id, transit_gateway_id):
                del backend.transit_gateway_attachments[ident]
        made = create(backend, transit_gateway_id=transit_gateway_id, vpc_id=vpc_id, **more)
        _clear(backend, made.id)
        return _settled(backend, made)

    return created


def _settling_tunnels(create: Callable[..., Any]) -> Callable[..., Any]:
    """Put the attachment of a VPN connection into its gateway's default tables."""

    def created(backend: Any, *given: Any, **named: Any) -> object:  # noqa: ANN401  # one of moto's mixed classes
        return _settled(backend, create(backend, *given, **named))

    return created


def _settled(backend: Any, attachment: Any) -> object:  # noqa: ANN401  # moto's own
    hub = backend.transit_gateways[attachment.transit_gateway_id]
    attachment.transit_gateway_route_table = None
    if hub.options["DefaultRouteTableAssociation"] == _ENABLED:
        attachment.transit_gateway_route_table = hub.default_route_table
        backend.associate_transit_gateway_route_table(attachment.id, hub.default_route_table.id)
    if hub.options["DefaultRouteTablePropagation"] == _ENABLED:
        backend.enable_transit_gateway_route_table_propagation(attachment.id, hub.default_route_table.id)
    return attachment


def _clear(backend: Any, ident: str) -> None:  # noqa: ANN401
    """Take an attachment out of all tables of a region."""
    for table in backend.transit_gateways_route_tables.values():
        table.route_table_associations.pop(ident, None)
        table.route_table_propagation = [
            each for each in table.route_table_propagation if each.transitGatewayAttachmentId != ident
        ]
    backend.transit_gateway_associations.pop(ident, None)
    backend.transit_gateway_propagations.pop(ident, None)


def _keeping_deleted(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Tell of a deleted attachment of a VPC as deleted: the provider waits until it hears that."""

    def deleted(backend: Any, transit_gateway_attachment_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_attachment_id=transit_gateway_attachment_id)
        _clear(backend, gone.id)
        backend.transit_gateway_attachments[gone.id] = gone
        return gone

    return deleted


def _clearing_both_ends(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Take a deleted peering out of the tables of both regions."""

    def deleted(backend: Any, transit_gateway_attachment_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_attachment_id=transit_gateway_attachment_id)
        for other in type(backend)._get_peering_attachment_backend_refs():  # noqa: SLF001  # moto's way to the peer
            if gone.id in other.transit_gateway_attachments:
                _clear(other, gone.id)
        return gone

    return deleted


def _clearing_tunnels(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Take the attachment of a deleted VPN connection out of all tables."""

    def deleted(backend: Any, vpn_connection_id: str) -> object:  # noqa: ANN401
        for ident, attachment in backend.transit_gateway_attachments.items():
            if attachment.resource_id == vpn_connection_id:
                _clear(backend, ident)
        return delete(backend, vpn_connection_id)

    return deleted


def _one_of_several(disable: Callable[..., Any]) -> Callable[..., Any]:
    """Let an attachment stop propagating to one table of several: moto knows of one only."""

    def disabled(backend: Any, transit_gateway_attachment_id: str, transit_gateway_route_table_id: str) -> object:  # noqa: ANN401
        pair = (transit_gateway_attachment_id, transit_gateway_route_table_id)
        known = backend.transit_gateway_propagations
        known.setdefault(pair[0], TransitGatewayRelations(backend, *pair, state="enabled"))
        return disable(backend, *pair)

    return disabled


def _with_its_tables(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Delete a gateway's tables with it."""

    def deleted(backend: Any, transit_gateway_id: str) -> object:  # noqa: ANN401
        gone = delete(backend, transit_gateway_id)
        for table in backend.transit_gateways_route_tables.values():
            if table.transit_gateway_id == transit_gateway_id:
                table.state = "deleted"
        return gone

    return deleted


_Repair = Callable[[Callable[..., Any]], Callable[..., Any]]
_ATTACHMENTS, _TABLES = TransitGatewayAttachmentBackend, TransitGatewayRouteTableBackend
_REPAIRS: Mapping[tuple[type, str], _Repair] = MappingProxyType(
    {
        (_ATTACHMENTS, "create_transit_gateway_vpc_attachment"): _settling_network,
        (_ATTACHMENTS, "create_transit_gateway_vpn_attachment"): _settling_tunnels,
        (_ATTACHMENTS, "delete_transit_gateway_vpc_attachment"): _keeping_deleted,
        (_ATTACHMENTS, "delete_transit_gateway_peering_attachment"): _clearing_both_ends,
        (VPNConnectionBackend, "delete_vpn_connection"): _clearing_tunnels,
        (_TABLES, "create_transit_gateway_route"): keeping_attachments,
        (_TABLES, "search_transit_gateway_routes"): telling_routes,
        (_TABLES, "disable_transit_gateway_route_table_propagation"): _one_of_several,
        (TransitGatewayBackend, "delete_transit_gateway"): _with_its_tables,
    }
)


_OWN_INTERFACE = "Primary network interface"


@contextmanager
def mended() -> Iterator[None]:
    """Mend moto; put everything back as it was at the end."""
    with ExitStack() as repairs:
        repairs.enter_context(wrapped(LaunchTemplate, "create_version", _decoding))
        repairs.enter_context(wrapped(Instance, "terminate", _letting_go))
        repairs.enter_context(wrapped(SubnetBackend, "delete_subnet", _leaving_its_acl))
        repairs.enter_context(replaced(nat_gateways, "random_private_ip", _left_to_its_subnet))
        repairs.enter_context(wrapped(AutoScalingBackend, "put_scheduled_update_group_action", _kept_apart))
        repairs.enter_context(wrapped(AutoScalingBackend, "delete_scheduled_action", _dropped_apart))
        repairs.enter_context(wrapped(responses, "method_names_from_class", cache))
        repairs.enter_context(mended_transit())
        repairs.enter_context(mended_resolver())
        yield


def _decoding(create_version: Callable[..., Any]) -> Callable[..., Any]:
    """Let a later version of a launch template start machines: moto decodes user data of the first one only."""

    def decoded(template: LaunchTemplate, data: dict[str, Any], description: str) -> object:
        given = data.get("UserData")
        known = {**data, "UserData": Base64EncodedString(given)} if isinstance(given, str) else data
        return create_version(template, known, description)

    return decoded


def _letting_go(terminate: Callable[..., Any]) -> Callable[..., Any]:
    """Let a machine that ends take the interface it came with, and leave the others free: moto keeps all of them."""

    def terminated(machine: Instance) -> object:
        for interface in machine.nics.values():
            if interface.description == _OWN_INTERFACE:
                interface.delete_on_termination = True
        state = terminate(machine)
        for interface in machine.nics.values():
            # The machine still tells of them, so they stay in its book.
            interface.instance = interface.attachment_id = interface.attach_time = interface.device_index = None
            interface.status = "available"
        return state

    return terminated


def _leaving_its_acl(delete_subnet: Callable[..., Any]) -> Callable[..., Any]:
    """Let a deleted subnet leave its network ACL: moto keeps the association, and the ACL cannot go."""

    def deleted(backend: Any, subnet_id: str) -> object:  # noqa: ANN401  # one of moto's mixed classes
        gone = delete_subnet(backend, subnet_id)
        for acl in backend.network_acls.values():
            for key, association in list(acl._associations.items()):  # noqa: SLF001  # moto offers no other way
                if association.subnet_id == subnet_id:
                    del acl._associations[key]  # noqa: SLF001
        return gone

    return deleted


def _left_to_its_subnet() -> str:
    """Let a NAT gateway's interface take an address of its subnet: moto draws one of anybody's."""
    return ""


def _kept_apart(put: Callable[..., Any]) -> Callable[..., Any]:
    """Let each group have scheduled actions of its own: moto keeps one of a name, whosesoever it is."""

    def kept(backend: AutoScalingBackend, *, name: str, scheduled_action_name: str, **more: object) -> object:
        action = put(backend, name=name, scheduled_action_name=scheduled_action_name, **more)
        book = backend.scheduled_actions
        book[f"{name}:{scheduled_action_name}"] = book.pop(scheduled_action_name)
        return action

    return kept


def _dropped_apart(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Drop the group's own scheduled action."""

    def dropped(backend: AutoScalingBackend, *, auto_scaling_group_name: str, scheduled_action_name: str) -> None:
        delete(backend, auto_scaling_group_name, scheduled_action_name)
        backend.scheduled_actions.pop(f"{auto_scaling_group_name}:{scheduled_action_name}", None)

    return dropped


_SWITCH: Final = "MOTO_EC2_LOAD_DEFAULT_AMIS"
_AWS_OWN: Final = ":iam::aws:policy/"
_AMAZON: Final = "amazon"


@contextmanager
def empty_stock() -> Iterator[None]:
    """Keep moto from loading images by itself."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "false"
    try:
        yield
    finally:
        os.environ.pop(_SWITCH)
        if before is not None:
            os.environ[_SWITCH] = before


def bring(account: str, region: str, operation: str, params: Mapping[str, Any]) -> None:
    """Bring in what a call is about to ask for."""
    if operation == "describe_images":
        _bring_images(account, region, params.get("ImageIds") or [])
    for value in params.values():
        if isinstance(value, str) and _AWS_OWN in value:
            _bring_policy(account, value)


def hold_images(account: str, images: Mapping[str, str]) -> None:
    """Hold images that an account was given before: their ids by `region/architecture`."""
    for place, ident in images.items():
        region, _, arch = place.partition("/")
        backend = ec2_backends[account][region]
        if ident not in backend.amis:
            own = Ami(backend, ident, owner_id=account, name=ident, architecture=arch, root_device_type="ebs")
            backend.amis[ident] = own


def _bring_images(account: str, region: str, idents: Collection[str]) -> None:
    backend = ec2_backends[account][region]
    known = bool(idents) and all(ident in backend.amis for ident in idents)
    if not known and not any(image.owner_alias == _AMAZON for image in backend.amis.values()):
        os.environ[_SWITCH] = "true"
        backend._load_amis()  # noqa: SLF001  # what its constructor would have done
        os.environ[_SWITCH] = "false"


def _bring_policy(account: str, arn: str) -> None:
    backend = iam_backends[account]["aws"]
    name = arn.rpartition("/")[2]
    if arn not in backend.managed_policies:
        found = json.loads(aws_managed_policies_data).get(name)
        if found is not None:
            policy = AWSManagedPolicy.from_data(name, account, "aws", found)
            backend.managed_policies[policy.arn] = policy


@contextmanager
def failing_launches(faults: Faults) -> Iterator[None]:
    """Fail launches of groups for which no zone has capacity."""
    failed: list[tuple[str, Activity]] = []

    def wrap(launch: Callable[..., Any]) -> Callable[..., Any]:
        def checked(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> object:
            types = _instance_types(group)
            if _is_reserved(group) or not faults.lacks_capacity(types, group.availability_zones):
                return launch(group, count_needed, propagated_tags)
            region, running = group.autoscaling_backend.region_name, len(group.active_instances())
            shortage = Shortage(group.name, region, desired=running + count_needed, running=running)
            faults.shortages[region, group.name] = shortage
            failed.append((region, _activity(group, types)))
            return None

        return checked

    def activities(response: AutoScalingResponse) -> ActionResult:
        name = response._get_param("AutoScalingGroupName")  # noqa: SLF001  # moto has no public accessor
        found = [
            activity
            for region, activity in failed
            if region == response.region and name in (None, activity.auto_scaling_group_name)
        ]
        return ActionResult({"Activities": found[::-1]})

    with (
        wrapped(FakeAutoScalingGroup, "replace_autoscaling_group_instances", wrap),
        replaced(AutoScalingResponse, "describe_scaling_activities", activities),
    ):
        yield


def _instance_types(group: FakeAutoScalingGroup) -> list[str]:
    """Return the instance types that a group may start; an empty one where requirements choose it."""
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
