"""Whether a request is signed as AWS demands, by the keys of a role: botocore signs it once more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<signed>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)
_NEEDED = {"host", "x-amz-date", "x-amz-security-token"}
_SUM = "X-Amz-Content-Sha256"


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; names of headers are in AWS's own case, `X-Amz-Date`."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Scope:
    """What a signature holds for."""

    region: str
    service: str


def signed_for(request: Request, keys: Credentials) -> Scope | None:
    """Return what a request is signed for by these keys; None where it is not, or where its body is another."""
    told = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if told is None or not _is_whole(request, set(told["signed"].split(";")), keys):
        return None
    scope = Scope(told["region"], told["service"])
    return scope if _signature(request, set(told["signed"].split(";")), scope, keys) == told["signature"] else None


def _is_whole(request: Request, names: set[str], keys: Credentials) -> bool:
    """Tell whether what must be signed is, by the right token, and whether the body has the sum that was signed."""
    stated = request.headers.get(_SUM, "UNSIGNED")
    if not stated.startswith(("UNSIGNED", "STREAMING")) and stated != sha256(request.body).hexdigest():
        return False
    return names >= _NEEDED and request.headers.get("X-Amz-Security-Token") == keys.token


def _signature(request: Request, names: set[str], scope: Scope, keys: Credentials) -> str:
    headers = {name: value for name, value in request.headers.items() if name.lower() in names}
    again = AWSRequest(request.method, f"http://{headers['Host']}{request.path}", headers=headers, data=request.body)
    again.context["timestamp"] = headers["X-Amz-Date"]
    # S3 takes paths as they are.
    kind = S3SigV4Auth if scope.service == "s3" else SigV4Auth
    signer = kind(keys, scope.service, scope.region)
    return str(signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again))
