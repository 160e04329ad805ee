"""A stand-in for S3 as a role's machine meets it: signed calls alone, judged by the role's and the bucket's policy.

moto keeps the objects. What this does not know how to judge it refuses; a bucket answers in its own region alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from urllib.parse import parse_qs, quote, unquote

import requests
from botocore.credentials import Credentials

from bedplate.plan.fleet import FleetPlan
from bedplate.rehearsal.simulation import Aws
from stacks.bucket_policy import bucket_policy
from stacks.permissions import permissions
from stacks.policy import policy
from tests.support.judged_call import Call, allowed
from tests.support.signed import Request, signed_for

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
