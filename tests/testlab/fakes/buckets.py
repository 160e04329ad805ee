"""Calls to AWS judged by policies as IAM judges them: which statements of a document speak of a call.

Knows the conditions that our own documents have; another one is a KeyError, and never passes for met.
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

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import Mount
from bedplate.rehearsal.simulation import Aws
from roles.storage.mounts import Attached, loopback, mounted, tunnel
from stacks.identity.policy import policy
from stacks.identity.roles import permissions
from stacks.storage.buckets import bucket_policy
from tests.testlab.fakes.aws import Request, signed_for


@dataclass(frozen=True, slots=True)
class Call:
    """An action on a resource, and what else a request tells of itself: `aws:SecureTransport` and the like."""

    action: str
    resource: str
    told: Mapping[str, str]


def concerned(document: str, call: Call) -> list[dict[str, Any]]:
    """Return the statements of a policy, allowing or denying, whose every part the call meets."""
    return [one for one in json.loads(document)["Statement"] if _meets(one, call)]


def allowed(call: Call, of_role: str, of_resource: str) -> bool:
    """Tell whether a role's policy allows a call and neither policy denies it."""
    said = {one["Effect"] for one in concerned(of_role, call)}
    return said == {"Allow"} and not any(one["Effect"] == "Deny" for one in concerned(of_resource, call))


def _meets(statement: Mapping[str, Any], call: Call) -> bool:
    return (
        any(fnmatchcase(call.action, pattern) for pattern in statement["Action"])
        and any(fnmatchcase(call.resource, pattern) for pattern in statement["Resource"])
        and all(_holds(operator, tests, call.told) for operator, tests in statement.get("Condition", {}).items())
    )


def _holds(operator: str, tests: Mapping[str, list[str]], told: Mapping[str, str]) -> bool:
    """Tell whether a condition holds, absent keys included (IAM user guide, condition operators)."""
    return all(_OPERATORS[operator](told.get(key), wanted) for key, wanted in tests.items())


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "Bool": lambda told, wanted: told in wanted,
    "BoolIfExists": lambda told, wanted: told is None or told in wanted,
    "NumericLessThan": lambda told, wanted: told is not None and float(told) < float(wanted[0]),
    "StringNotEquals": lambda told, wanted: told not in wanted,
}


_ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
# By the method, and by whether a key is named. Source: service authorization reference, Amazon S3.
_ACTIONS = {
    ("GET", False): "s3:ListBucket",
    ("HEAD", False): "s3:ListBucket",
    ("GET", True): "s3:GetObject",
    ("HEAD", True): "s3:GetObject",
    ("PUT", True): "s3:PutObject",
    ("POST", True): "s3:PutObject",
    ("DELETE", True): "s3:DeleteObject",
}
# Words of a query that name another thing than the object or the list, and so another action.
_PLAIN = {
    *("list-type", "prefix", "delimiter", "encoding-type", "max-keys", "continuation-token", "start-after"),
    *("uploads", "uploadId", "partNumber", "x-id"),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, headers and body of an answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ObjectStore:
    """The buckets of a fleet, and of others, for machines of one kind, which hold `keys`; `asked` is all that came."""

    plan: FleetPlan
    aws: Aws
    kind: str
    others: tuple[str, ...] = ()
    asked: list[tuple[str, str]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        held = self.aws.call("sts", "assume_role", RoleArn=self.role, RoleSessionName="i-0123456789abcdef0")
        told = held["Credentials"]
        self.keys = Credentials(told["AccessKeyId"], told["SecretAccessKey"], told["SessionToken"])
        self._policies = {each.name: bucket_policy(self.plan, each) for each in self.plan.buckets}
        self._regions = {each.name: each.region for each in self.plan.buckets} | dict.fromkeys(self.others, "us-west-2")
        self._grants = policy(*permissions(self.plan, self.kind))
        for name, region in self._regions.items():
            self._make(name, region)

    @property
    def role(self) -> str:
        """The role's ARN."""
        return f"arn:aws:iam::{self.plan.account}:role/{self.plan.name}-{self.kind}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which S3 is asked for: each region's, and each bucket's."""
        regions = sorted({*self._regions.values()})
        names = (f"{name}.s3.{region}.amazonaws.com" for name, region in self._regions.items())
        return (*(f"s3.{region}.amazonaws.com" for region in regions), *names)

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Lay an object there, as its owner."""
        self.aws.elsewhere(self._regions[bucket]).call("s3", "put_object", Bucket=bucket, Key=key, Body=data)

    def held(self, bucket: str, key: str) -> bytes:
        """Return what an object holds."""
        told = self.aws.elsewhere(self._regions[bucket]).call("s3", "get_object", Bucket=bucket, Key=key)
        data: bytes = told["Body"].read()
        return data

    def answer(self, request: Request, *, tls: str) -> Reply:
        """Answer a request that came by a version of TLS, `1.3`."""
        scope = signed_for(request, self.keys)
        if scope is None or scope.service != "s3":
            return _refusal(403, "SignatureDoesNotMatch", "The request signature does not match.")
        bucket, key = self._named(request)
        call = self._call(request, bucket, key, tls)
        with self._lock:
            self.asked.append((call.action, call.resource))
            if not allowed(call, self._grants, self._policies.get(bucket, '{"Statement": []}')):
                return _refusal(403, "AccessDenied", f"{self.role} is not authorized to perform: {call.action}")
            if scope.region != self._regions[bucket]:
                return _refusal(400, "AuthorizationHeaderMalformed", f"{scope.region} is wrong for {bucket}")
            return _passed_on(request, f"{bucket}.s3.{scope.region}.amazonaws.com", key)

    def _make(self, name: str, region: str) -> None:
        where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        self.aws.elsewhere(region).call("s3", "create_bucket", Bucket=name, **where)

    def _named(self, request: Request) -> tuple[str, str]:
        """Return bucket and key, either may be empty: the bucket is in the host's name, or the path's first part."""
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
        told = {"aws:PrincipalArn": self.role, "aws:PrincipalIsAWSService": "false"}
        return Call(
            action if bucket else "s3:ListAllMyBuckets",
            resource if bucket else "*",
            {**told, "aws:SecureTransport": "true", "s3:TlsVersion": tls},
        )


def _refusal(status: int, code: str, message: str) -> Reply:
    return Reply(status, _ERROR.format(code, message).encode(), {"Content-Type": "application/xml"})


def _passed_on(request: Request, host: str, key: str) -> Reply:
    """Let moto, which stands in this process where the world would be, carry it out."""
    url = f"https://{host}/{quote(key)}?{request.path.partition('?')[2]}"
    told = {name: value for name, value in request.headers.items() if name not in {"Host", "Transfer-Encoding"}}
    made = requests.request(request.method, url, headers=told, data=request.body, timeout=60, stream=True)
    # An answer to HEAD tells a length that does not follow.
    return Reply(made.status_code, b"" if request.method == "HEAD" else made.content, dict(made.headers))


_RIGHTS = ("ClientMount", "ClientWrite", "ClientRootAccess")


def way_of(mount: Mount) -> Mapping[str, str]:
    """Return the conditions under which EFS sees a mount as the role makes it: by TLS only where its tunnel stands."""
    at = mounted(mount)
    return {
        "aws:securetransport": str(_is_by_tls(mount, at)).lower(),
        # A name of the fleet's own zone leads to the addresses of mount targets.
        "elasticfilesystem:accessedviamounttarget": "true",
    }


def rights(policy: str, system: str, way: Mapping[str, str]) -> set[str]:
    """Return what a client without an identity may do."""
    told = json.loads(policy)["Statement"]
    return {right for right in _RIGHTS if _may(told, f"elasticfilesystem:{right}", system, way)}


def _is_by_tls(mount: Mount, at: Attached) -> bool:
    conf, unit = tunnel(mount)
    begins = loopback(mount.store)
    is_led = f"accept = {begins}:2049\nconnect = {mount.server}:2049\n" in conf.text and "client = yes" in conf.text
    return is_led and at.tunnel == unit.name and at.source.startswith(f"{begins}:")


def _may(told: list[dict[str, Any]], action: str, system: str, way: Mapping[str, str]) -> bool:
    effects = {one["Effect"] for one in told if _is_about(one, action, system) and _file_server_holds(one, way)}
    return effects == {"Allow"}


def _is_about(one: dict[str, Any], action: str, system: str) -> bool:
    is_anybody = one["Principal"] == "*" or "*" in _all(one["Principal"]["AWS"])
    actions = (each.lower() for each in _all(one["Action"]))
    is_action = any(fnmatchcase(action.lower(), each) for each in actions)
    return is_anybody and is_action and any(fnmatchcase(system, each) for each in _all(one["Resource"]))


def _file_server_holds(one: dict[str, Any], way: Mapping[str, str]) -> bool:
    tests = one.get("Condition", {})
    assert set(tests) <= {"Bool"}, f"{sorted(tests)}: this stand-in knows one operator"
    return all(way.get(key.lower()) in _all(value) for key, value in tests.get("Bool", {}).items())


def _all(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
