"""The table of resource kinds: one module a noun, each a row or a few that belong together."""

from collections.abc import Mapping
from types import MappingProxyType

from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.kinds.vpc import VPC

KINDS: Mapping[str, Kind] = MappingProxyType({kind.token: kind for kind in (VPC,)})
