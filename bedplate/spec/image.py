"""The machine image that cloud nodes start from."""

from typing import Literal

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.text import DriverBranch


class Image(Spec):
    """The base system and the NVIDIA driver baked on it."""

    base: Literal["ubuntu-24.04"] = Field(
        default="ubuntu-24.04", title="Base system", description="The Ubuntu release that images start from."
    )
    driver: DriverBranch = Field(
        default="580", title="Driver branch", description="NVIDIA driver branch, quoted, such as '580'."
    )
