"""SSM parameters, a program's own and AWS's public ones."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup
from bedplate.rehearsal.simulation import Aws


def _parameter(aws: Aws, args: Props) -> dict[str, Any]:
    name, opened = str(args["name"]), args.get("withDecryption", True)
    found = aws.call("ssm", "get_parameter", Name=name, WithDecryption=opened)["Parameter"]
    return {
        "arn": aws.arn("ssm", f"parameter/{name.removeprefix('/')}"),
        "id": name,
        "insecureValue": "" if found["Type"] == "SecureString" else found["Value"],
        "type": found["Type"],
        "value": found["Value"],
        "version": found["Version"],
        "withDecryption": opened,
    }


PARAMETER = Lookup("aws:ssm/getParameter:getParameter", frozenset({"name", "withDecryption"}), _parameter)
