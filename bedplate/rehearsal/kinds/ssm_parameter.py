"""SSM parameters, secure ones included."""

import re
from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Text, beyond
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS = {
    "name": Text(1, 2048, r"[a-zA-Z0-9_.\-/]+", "letters, digits and _.-/"),
    "description": Text(0, 1024),
    "type": Choice(("String", "StringList", "SecureString")),
    "tier": Choice(("Standard", "Advanced", "Intelligent-Tiering")),
    "dataType": Choice(("aws:ec2:image", "aws:ssm:integration", "text")),
}
_APART = ("insecureValue", "tags", "overwrite", "arn")
_LARGEST = {"Advanced": 8192, "Intelligent-Tiering": 8192}  # bytes of a value; of the standard tier, half
_LARGEST_STANDARD = 4096
_DEEPEST = 15  # levels of a name: Systems Manager user guide, "Parameter names"
_TAGS = Tagger(
    service="ssm",
    add="add_tags_to_resource",
    remove="remove_tags_from_resource",
    ident="ResourceId",
    fixed={"ResourceType": "Parameter"},
)


def _params(aws: Aws, inputs: Props) -> dict[str, Any]:
    value = {"value": inputs.get("value") or inputs.get("insecureValue")}
    return placed(aws, ("ssm", "put_parameter"), {**inputs, **value}, apart=_APART)


def _create(aws: Aws, inputs: Props) -> str:
    _refuse_lost_key(aws, inputs)
    name: str = inputs["name"]
    params = _params(aws, inputs)
    if inputs.get("overwrite"):
        aws.call("ssm", "put_parameter", Overwrite=True, **params)
        _TAGS.retag(aws, name, {}, inputs)
    else:
        aws.call("ssm", "put_parameter", Tags=tag_pairs(inputs.get("tags")), **params)
    return name


def _refuse_lost_key(aws: Aws, inputs: Props) -> None:
    key = inputs.get("keyId")
    if not key or key == "alias/aws/ssm":
        return
    try:
        aws.call("kms", "describe_key", KeyId=key)
    except Refusal:
        raise Refusal("InvalidKeyId", f"{key} is no KMS key of {aws.region}", key="keyId") from None


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if {**old, "tags": None} != {**new, "tags": None}:
        _refuse_lost_key(aws, new)
        aws.call("ssm", "put_parameter", Overwrite=True, **_params(aws, new))
    _TAGS.retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ssm", "get_parameter", Name=ident, WithDecryption=True)["Parameter"]
    secure = found["Type"] == "SecureString"
    return {
        "arn": aws.arn("ssm", f"parameter/{ident.removeprefix('/')}"),
        "dataType": found["DataType"],
        "insecureValue": "" if secure else found["Value"],
        "keyId": inputs.get("keyId") or ("alias/aws/ssm" if secure else ""),
        "name": ident,
        "tier": inputs.get("tier") or "Standard",
        "value": found["Value"],
        "version": found["Version"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ssm", "delete_parameter", Name=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    if inputs.get("value") is None and inputs.get("insecureValue") is None:
        yield Complaint("value", "one of value and insecureValue must be given")
    name, value = inputs.get("name"), inputs.get("value") or inputs.get("insecureValue")
    if is_known(name) and "/" in str(name).lstrip("/") and not str(name).startswith("/"):
        yield Complaint("name", f"{name}: a name with levels begins with /")
    if is_known(name) and str(name).strip("/").count("/") >= _DEEPEST:
        yield Complaint("name", f"a name has at most {_DEEPEST} levels")
    yield from _pattern_complaints(inputs.get("allowedPattern"), value)
    most = _LARGEST.get(str(inputs.get("tier")), _LARGEST_STANDARD)
    if is_known(value) and len(str(value).encode()) > most:
        yield Complaint("value", f"a value of this tier has at most {most} bytes")


def _pattern_complaints(pattern: object, value: object) -> Iterator[Complaint]:
    """Yield what is wrong with a value by the program's own pattern, or with the pattern; never the value."""
    if not (is_known(pattern) and is_known(value) and pattern):
        return
    try:
        matches = re.fullmatch(str(pattern), str(value))
    except re.error as error:
        yield Complaint("allowedPattern", f"InvalidAllowedPatternException: {error}")
        return
    if not matches:
        yield Complaint("value", f"ParameterPatternMismatchException: the value does not match {pattern}")


PARAMETER = Kind(
    token="aws:ssm/parameter:Parameter",
    inputs=updates("allowedPattern", "description", "insecureValue", "keyId", "overwrite", "tags", "tier")
    | updates("type", "value")
    | replaces("dataType", "name"),
    computed=frozenset({"dataType", "insecureValue", "keyId", "tier", "value"}),
    moves=frozenset({"insecureValue", "value", "version"}),
    naming=Naming(longest=2048),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
