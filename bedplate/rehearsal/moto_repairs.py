"""Faults of moto's inside that no call of AWS's goes round, mended for as long as the simulation runs.

One of them is of time: moto searches the class that answers for the names of its methods anew at each call.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from moto.autoscaling.models import AutoScalingBackend
from moto.core import responses
from moto.core.types import Base64EncodedString
from moto.ec2.models import nat_gateways
from moto.ec2.models.instances import Instance
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.subnets import SubnetBackend

from bedplate.rehearsal.moto_resolver import mended_resolver
from bedplate.rehearsal.moto_transit import mended_transit
from bedplate.rehearsal.replaced import replaced, wrapped

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
