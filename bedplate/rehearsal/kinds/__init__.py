"""Resource kinds, by type token: every `Kind` at the top level of a module of this package."""

from collections.abc import Mapping

from bedplate.rehearsal.kind import Kind, find_rows

KINDS: Mapping[str, Kind] = find_rows(__name__, __path__, Kind)
