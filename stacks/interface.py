"""The network interfaces of a launch template."""

from collections.abc import Sequence

import pulumi
from pulumi_aws.ec2._inputs import LaunchTemplateNetworkInterfaceArgs

from bedplate.plan.interfaces import Adapter, Interface


def interface_args(
    layout: Sequence[Interface], security_group_id: pulumi.Input[str]
) -> list[LaunchTemplateNetworkInterfaceArgs]:
    """Return the interfaces of a layout, none of which gets a public address.

    With several interfaces EC2 takes no word on public addresses, and the subnets of nodes give none.
    """
    public = "false" if len(layout) == 1 else None
    return [
        LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card or None,
            device_index=one.device,
            interface_type=None if one.adapter is Adapter.ENA else one.adapter.value,
            associate_public_ip_address=public,
            delete_on_termination="true",
            security_groups=[security_group_id],
        )
        for one in layout
    ]
