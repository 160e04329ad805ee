"""Who the fleet's machines are to AWS, and what bounds them."""

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import PolicyArn


class Identity(Spec):
    """The roles of nodes: what they may do is derived, and this bounds it."""

    permissions_boundary: PolicyArn | None = Field(
        default=None,
        title="Permissions boundary",
        description="A managed policy of the account, set on every role that bedplate makes; some accounts demand one.",
    )
