"""What one stack reads of another."""

from typing import Any

import pulumi

from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan
from stacks.names import stack_name


def stack_of(plan: FleetPlan, part: str) -> pulumi.StackReference:
    """Return the stack of another part of the fleet, in the same organization and project.

    To be asked for once in a program: a reference is a resource, and there may be only one of a name.
    """
    return pulumi.StackReference(f"{pulumi.get_organization()}/{pulumi.get_project()}/{stack_name(plan, part)}")


def output_of(stack: pulumi.StackReference, name: str) -> pulumi.Output[Any]:
    """Return what a stack exports under a name, as secret as it is there; InputError when it exports no such thing.

    A stack that was made in part only has not exported all yet.
    """

    def known(told: list[Any]) -> object:
        if told[1] is None:
            full, part = told[0], told[0].rpartition("/")[2]
            raise InputError(f"{part} does not export {name} yet", where=full, fix=f"make {part} whole first")
        return told[1]

    return pulumi.Output.all(stack.name, stack.get_output(name)).apply(known)
