"""The resource types that the rehearsal knows: one `ResourceKind` for each, in the module of its topic.

`KINDS` collects every one at the top level of a module by type token, so a new type needs no registration
(docs/contributing.md). A type with ids of EC2 needs a line in ec2.py too.

Each module has its shared functions first, then for each type: checks, create, read, update, delete, and the row.
Checks yield errors before a call is made; create, update and delete raise `ResourceError`, the API error of AWS.
"""

from collections.abc import Mapping

from bedplate.rehearsal.kind import ResourceKind, find_kinds

KINDS: Mapping[str, ResourceKind] = find_kinds(__name__, __path__)
