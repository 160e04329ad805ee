"""Errors of the engine about the backend of its state, the key of its secrets, and states of newer tools."""

import re
from collections.abc import Mapping
from typing import Any

from semver import Version

from bedplate.errors import MachineError


class NoBackend(MachineError):
    """Pulumi has no backend to keep its state in."""


# How the engine begins a message about its own state or key. The errors of resources contain similar words.
_STATE = re.compile(
    r'error: (?:.*?(?:read "\.pulumi/|could not list bucket|unable to open (?:state directory|bucket)|'
    r"failed to (?:load|save) (?:checkpoint|snapshot)|unsupported checkpoint|state store unsupported).*)"
)
_KEY = re.compile(r"error: .*secrets manager.*?: (?:open keeper|secrets \().*")
_LOGIN = "log in to AWS, or set AWS_PROFILE"
# By a pattern of the message: the error, {what} replaced by the state or the secrets, and the fix.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"NoSuchBucket|no such file or directory",
        "the backend of {what} does not exist",
        "correct `backend: url` in Pulumi.yaml, or mount its folder; `bedplate backend init` makes a new backend",
    ),
    (r"ExpiredToken|expired", "the AWS credentials have expired", "log in again with `aws sso login`"),
    (r"get credentials|IMDS", "no AWS credentials found for {what}", _LOGIN),
    (
        r"AccessDenied|StatusCode: 403|permission denied",
        "no permission for {what}",
        "allow it to your role: docs/state.md of bedplate lists the actions",
    ),
    (
        r"NotFoundException|DisabledException|KMSInvalidStateException",
        "the KMS key of the secrets is missing or disabled",
        "`bedplate backend init` checks the key of the fleet; otherwise correct `secretsprovider`",
    ),
    (
        r"request send failed|dial tcp|no such host",
        "cannot connect to the backend of {what}",
        "check the network and the proxy of this machine, then run it again",
    ),
    (
        r"unsupported checkpoint version|needs support for the following features|is not supported by this version",
        "a newer Pulumi wrote the state",
        "update pulumi: https://www.pulumi.com/docs/install/",
    ),
)


def access_error(text: str) -> MachineError | None:
    """Return the operator's error for the output of a command that could not use its state or key, else None."""
    for pattern, what in ((_STATE, "the state"), (_KEY, "the secrets")):
        if match := pattern.search(text):
            for cause, message, fix in _CAUSES:
                if re.search(cause, match[0]):
                    return MachineError(message.format(what=what), fix=fix)
    return None


def check_provider(stack: str, deployment: Mapping[str, Any], version: str) -> None:
    """Raise MachineError if a newer AWS provider than the given version wrote a state: older ones cannot read it."""
    versions = (
        str(resource.get("inputs", {}).get("version"))
        for resource in deployment.get("resources") or ()
        if resource.get("type") == "pulumi:providers:aws"
    )
    newest = max((Version.parse(text) for text in versions if Version.is_valid(text)), default=None)
    if newest and newest > Version.parse(version):
        raise MachineError(
            f"pulumi-aws {newest} wrote the state of {stack}, and this clone of bedplate has {version}",
            fix="run `git pull` and `make setup` in the clone of bedplate",
        )
