"""Options that the stacks give their resources."""

import pulumi

# GPU and bare-metal instances can take longer to terminate than the provider waits by default, 10 minutes.
_GROUP_TIMEOUTS = pulumi.CustomTimeouts(update="45m", delete="45m")


def inside(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = (), ignore: tuple[str, ...] = ()
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component; inputs in `ignore` are somebody else's once it is made."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], ignore_changes=[*ignore])


def scaling_group(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...], ignore: tuple[str, ...]
) -> pulumi.ResourceOptions:
    """Return the options of an Auto Scaling group inside a component."""
    options = inside(parent, after=after, ignore=ignore)
    return pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=_GROUP_TIMEOUTS))


def kept(parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
    """Return the options of data and of what guards it: no engine deletes it, not even with its stack."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], protect=True, retain_on_delete=True)
