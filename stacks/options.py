"""Options that say what becomes of a resource when its stack goes."""

import pulumi


def inside(
    parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = (), ignore: tuple[str, ...] = ()
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component; inputs in `ignore` are somebody else's once it is made."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], ignore_changes=[*ignore])


def kept(parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
    """Return the options of data and of what guards it: no engine deletes it, not even with its stack."""
    return pulumi.ResourceOptions(parent=parent, depends_on=[*after], protect=True, retain_on_delete=True)
