"""The resource types that the rehearsal knows: one `Kind` for each, in the module of its topic.

`KINDS` collects every `Kind` at the top level of a module by type token, so a new type needs no registration. To add a
type: write its functions and its `Kind` in the module of its topic, and a fixture in tests/testlab/kinds; then run the
tests with `--rewrite`, which adds the type to tests/data/terraform. A type with ids of EC2 needs a line in ec2.py too.

Each module has its shared functions first, then for each type: checks, create, read, update, delete, and the `Kind`.
Checks yield errors before a call is made; create, update and delete raise `ResourceError`, the API error of AWS.
"""

from collections.abc import Mapping

from bedplate.rehearsal.kind import ResourceKind, find_rows

KINDS: Mapping[str, ResourceKind] = find_rows(__name__, __path__, ResourceKind)
