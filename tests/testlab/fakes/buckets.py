"""A fake of IAM policy evaluation, an S3 endpoint that checks policies, and the EFS rights of a mount.

It knows only the condition operators of our own policies; another operator is a KeyError.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import requests
from botocore.credentials import Credentials

from bedplate.permissions import permissions, policy
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.mounts import Mount
from bedplate.rehearsal.simulation import Aws
from roles.storage.mounts import Attached, client_mount, loopback, tunnel
from stacks.storage.buckets import bucket_policy
from tests.testlab.fakes.aws import Request, signed_for


@dataclass(frozen=True, slots=True)
class Call:
    """An action on a resource, with the condition keys of the request, such as `aws:SecureTransport`."""

    action: str
    resource: str
    condition_keys: Mapping[str, str]


def matching_statements(document: str, call: Call) -> list[dict[str, Any]]:
    """Return the statements of a policy that match a call."""
    return [statement for statement in json.loads(document)["Statement"] if _matches(statement, call)]


def allowed(call: Call, of_role: str, of_resource: str) -> bool:
    """Return whether a role's policy allows a call and neither policy denies it."""
    effects = {statement["Effect"] for statement in matching_statements(of_role, call)}
    return effects == {"Allow"} and not any(
        statement["Effect"] == "Deny" for statement in matching_statements(of_resource, call)
    )


def _matches(statement: Mapping[str, Any], call: Call) -> bool:
    return (
        any(fnmatchcase(call.action, pattern) for pattern in statement["Action"])
        and any(fnmatchcase(call.resource, pattern) for pattern in statement["Resource"])
        and all(
            _holds(operator, tests, call.condition_keys) for operator, tests in statement.get("Condition", {}).items()
        )
    )


def _holds(operator: str, tests: Mapping[str, list[str]], keys: Mapping[str, str]) -> bool:
    """Return whether a condition is met, missing keys included (IAM user guide, condition operators)."""
    return all(_OPERATORS[operator](keys.get(key), values) for key, values in tests.items())


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "Bool": lambda actual, values: actual in values,
    "BoolIfExists": lambda actual, values: actual is None or actual in values,
    "NumericLessThan": lambda actual, values: actual is not None and float(actual) < float(values[0]),
    "StringLike": lambda actual, values: any(fnmatchcase(actual or "", value) for value in values),
    "StringNotEquals": lambda actual, values: actual not in values,
    "StringNotLike": lambda actual, values: not any(fnmatchcase(actual or "", value) for value in values),
}


_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
# By method, and whether the request has a key. Source: service authorization reference, Amazon S3.
_ACTIONS = {
    ("GET", False): "s3:ListBucket",
    ("HEAD", False): "s3:ListBucket",
    ("GET", True): "s3:GetObject",
    ("HEAD", True): "s3:GetObject",
    ("PUT", True): "s3:PutObject",
    ("POST", True): "s3:PutObject",
    ("DELETE", True): "s3:DeleteObject",
}
# Query parameters that do not change the action.
_PLAIN = {
    *("list-type", "prefix", "delimiter", "encoding-type", "max-keys", "continuation-token", "start-after"),
    *("uploads", "uploadId", "partNumber", "x-id"),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ObjectStore:
    """The buckets of a fleet and of others, for nodes of one kind with `keys`; `calls` records the requests."""

    plan: FleetPlan
    aws: Aws
    kind: str
    others: tuple[str, ...] = ()
    calls: list[tuple[str, str]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        session = self.aws.call("sts", "assume_role", RoleArn=self.role, RoleSessionName="i-0123456789abcdef0")
        keys = session["Credentials"]
        self.keys = Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
        self._policies = {bucket.name: bucket_policy(self.plan, bucket) for bucket in self.plan.buckets}
        self._regions = {bucket.name: bucket.region for bucket in self.plan.buckets} | dict.fromkeys(
            self.others, "us-west-2"
        )
        self._grants = self.grants()
        for name, region in self._regions.items():
            self._make(name, region)

    @property
    def role(self) -> str:
        """The role's ARN."""
        return f"arn:aws:iam::{self.plan.account}:role/{self.plan.name}-{self.kind}"

    def grants(self) -> str:
        """Return the role's policy."""
        return policy(*permissions(self.plan, self.kind))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names of S3: of each region and each bucket."""
        regions = sorted({*self._regions.values()})
        names = (f"{name}.s3.{region}.amazonaws.com" for name, region in self._regions.items())
        return (*(f"s3.{region}.amazonaws.com" for region in regions), *names)

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object as the bucket's owner."""
        self.aws.in_region(self._regions[bucket]).call("s3", "put_object", Bucket=bucket, Key=key, Body=data)

    def held(self, bucket: str, key: str) -> bytes:
        """Return the content of an object."""
        response = self.aws.in_region(self._regions[bucket]).call("s3", "get_object", Bucket=bucket, Key=key)
        data: bytes = response["Body"].read()
        return data

    def answer(self, request: Request, *, tls: str) -> Reply:
        """Return the response to a request over a version of TLS, `1.3`."""
        scope = signed_for(request, self.keys)
        if scope is None or scope.service != "s3":
            return _error(403, "SignatureDoesNotMatch", "The request signature does not match.")
        bucket, key = self._named(request)
        call = self._call(request, bucket, key, tls)
        with self._lock:
            self.calls.append((call.action, call.resource))
            if not allowed(call, self._grants, self._policies.get(bucket, '{"Statement": []}')):
                return _error(403, "AccessDenied", f"{self.role} is not authorized to perform: {call.action}")
            if scope.region != self._regions[bucket]:
                return _error(400, "AuthorizationHeaderMalformed", f"{scope.region} is wrong for {bucket}")
            return _forward(request, f"{bucket}.s3.{scope.region}.amazonaws.com", key)

    def _make(self, name: str, region: str) -> None:
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        self.aws.in_region(region).call("s3", "create_bucket", Bucket=name, **where)

    def _named(self, request: Request) -> tuple[str, str]:
        """Return bucket and key, which may be empty: the bucket is in the host name or the first part of the path."""
        first, _, rest = request.headers["Host"].partition(".s3.")
        path = unquote(request.path.partition("?")[0]).lstrip("/")
        if rest:
            return first, path
        bucket, _, key = path.partition("/")
        return bucket, key

    def _call(self, request: Request, bucket: str, key: str, tls: str) -> Call:
        query = parse_qs(request.path.partition("?")[2], keep_blank_values=True)
        action = _ACTIONS.get((request.method, bool(key)), "s3:Unknown") if query.keys() <= _PLAIN else "s3:Unknown"
        resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
        keys = {"aws:PrincipalArn": self.role, "aws:PrincipalIsAWSService": "false"}
        return Call(
            action if bucket else "s3:ListAllMyBuckets",
            resource if bucket else "*",
            {**keys, "aws:SecureTransport": "true", "s3:TlsVersion": tls, "s3:prefix": query.get("prefix", [""])[0]},
        )


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, _ERROR.format(code, message).encode(), {"Content-Type": "application/xml"})


def _forward(request: Request, host: str, key: str) -> Reply:
    """Let moto, which runs in this process, carry out the request."""
    url = f"https://{host}/{quote(key)}?{request.path.partition('?')[2]}"
    headers = {name: value for name, value in request.headers.items() if name not in {"Host", "Transfer-Encoding"}}
    response = requests.request(request.method, url, headers=headers, data=request.body, timeout=60, stream=True)
    # A response to HEAD has a content length without content.
    content = b"" if request.method == "HEAD" else response.content
    return Reply(response.status_code, content, {name.title(): value for name, value in response.headers.items()})


_RIGHTS = ("ClientMount", "ClientWrite", "ClientRootAccess")


def mount_conditions(mount: Mount) -> Mapping[str, str]:
    """Return the condition keys of a mount as the role makes it: with TLS if its tunnel is configured."""
    at = client_mount(mount)
    return {
        "aws:securetransport": str(_is_by_tls(mount, at)).lower(),
        # Names in the fleet's zone resolve to mount targets.
        "elasticfilesystem:accessedviamounttarget": "true",
    }


def rights(policy: str, system: str, way: Mapping[str, str]) -> set[str]:
    """Return the rights of an anonymous client."""
    statements = json.loads(policy)["Statement"]
    return {right for right in _RIGHTS if _may(statements, f"elasticfilesystem:{right}", system, way)}


def _is_by_tls(mount: Mount, at: Attached) -> bool:
    conf, unit = tunnel(mount)
    address = loopback(mount.store)
    is_forwarded = (
        f"accept = {address}:2049\nconnect = {mount.server}:2049\n" in conf.text and "client = yes" in conf.text
    )
    return is_forwarded and at.tunnel == unit.name and at.source.startswith(f"{address}:")


def _may(statements: list[dict[str, Any]], action: str, system: str, way: Mapping[str, str]) -> bool:
    effects = {
        statement["Effect"]
        for statement in statements
        if _is_about(statement, action, system) and _conditions_hold(statement, way)
    }
    return effects == {"Allow"}


def _is_about(statement: dict[str, Any], action: str, system: str) -> bool:
    is_anybody = statement["Principal"] == "*" or "*" in _all(statement["Principal"]["AWS"])
    actions = (pattern.lower() for pattern in _all(statement["Action"]))
    is_action = any(fnmatchcase(action.lower(), pattern) for pattern in actions)
    return is_anybody and is_action and any(fnmatchcase(system, pattern) for pattern in _all(statement["Resource"]))


def _conditions_hold(statement: dict[str, Any], way: Mapping[str, str]) -> bool:
    tests = statement.get("Condition", {})
    assert set(tests) <= {"Bool"}, f"{sorted(tests)}: only the operator Bool is supported"
    return all(way.get(key.lower()) in _all(value) for key, value in tests.get("Bool", {}).items())


def _all(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
