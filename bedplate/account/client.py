"""The client of an AWS account: calls in all regions, creations with an unknown result, and errors with a fix.

AWS's texts about credentials and permissions are never shown: they quote the signed request and the identity.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from types import MappingProxyType
from typing import IO, Any, Generic, Protocol, TypeVar

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    LoginError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotocoreConnectionError
from botocore.parsers import ResponseParserError

from bedplate.errors import BedplateError, InputError, MachineError, PartialError
from bedplate.foreign import LARGEST
from bedplate.rounds import ask_each

_LONGEST = 200
_CHUNK = 1 << 20
_SERVER_FAULT = 500


class NoCredentials(MachineError):
    """No AWS credentials on this machine."""


class NotThere(PartialError):
    """The requested resource does not exist in AWS."""


class TooLarge(PartialError):
    """An object of a bucket is larger than the reader expects."""


class NotConnected(PartialError):
    """The Systems Manager agent of an instance is not connected."""


class Denied(MachineError):
    """The credentials lack a permission."""


class Unreachable(MachineError):
    """AWS gave no answer, or something else answered: nothing is known of the account."""


_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired")
_UNKNOWN = (
    "AuthFailure",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
)
# Responses to HEAD have no error code but their status.
_DENIED = ("403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_THROTTLED = (
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
)
_NOT_CONNECTED = ("InvalidInstanceId", "TargetNotConnected")
_NOT_THERE = (
    "404",  # HEAD of a bucket: S3 sends no other code
    "InvalidVpcEndpointId.NotFound",
    "InvocationDoesNotExist",
    "NoSuchBucket",
    "NoSuchBucketPolicy",
    "NoSuchEntity",
    "NoSuchKey",
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "NoSuchResourceException",
    "NotFoundException",
    "OwnershipControlsNotFoundError",
    "ServerSideEncryptionConfigurationNotFoundError",
    "ParameterNotFound",
    "ParameterVersionNotFound",
    "RepositoryNotFoundException",
    "ResourceNotFoundException",
)
# The IAM action prefix of a service, where it differs from the service's name in boto3.
_PREFIXES: Mapping[str, str] = MappingProxyType(
    {"efs": "elasticfilesystem", "resourcegroupstaggingapi": "tag", "service-quotas": "servicequotas"}
)
# The IAM action of an operation, where its name differs.
_ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "DescribeBudget": "ViewBudget",
        "HeadBucket": "ListBucket",
        "HeadObject": "GetObject",
        "ListObjectVersions": "ListBucketVersions",
        "ListObjectsV2": "ListBucket",
        **{
            f"{verb}{operation}": f"{verb}{action}"
            for verb in ("Get", "Put")
            for operation, action in (
                ("BucketEncryption", "EncryptionConfiguration"),
                ("BucketLifecycleConfiguration", "LifecycleConfiguration"),
                ("PublicAccessBlock", "BucketPublicAccessBlock"),
            )
        },
    }
)


def iam_action(service: str, operation: str) -> str:
    """Return the IAM action of an operation of AWS's API: `s3:ListBucket` for `HeadBucket` of `s3`."""
    return f"{_PREFIXES.get(service, service)}:{_ACTIONS.get(operation, operation)}"


def translate_error(error: BotoCoreError | ClientError, service: str) -> BedplateError:
    """Return the operator's error for a failed call of a service."""
    if isinstance(error, ClientError):
        return _translate_api_error(error, service)
    match error:
        case NoCredentialsError():
            return NoCredentials("no AWS credentials found", fix="log in to AWS, or set AWS_PROFILE")
        case PartialCredentialsError():
            return MachineError(
                "the AWS credentials are incomplete", fix="set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        case ProfileNotFound():
            what = f"AWS_PROFILE: no profile named {error.kwargs.get('profile')}"
            return MachineError(what, fix="`aws configure list-profiles` lists the profiles")
        case SSOError() | LoginError() | TokenRetrievalError() | CredentialRetrievalError():
            return _expired_credentials()
        case HTTPClientError() | BotocoreConnectionError():
            fix = "check the network, the proxy and the CA certificates of this machine"
            return Unreachable(f"cannot connect to {service} over HTTPS", fix=fix)
        case ResponseParserError():
            fix = "check whether a proxy answers instead of AWS"
            return Unreachable(f"the response from {service} is not from AWS", fix=fix)
        case _:
            fix = "check ~/.aws/config and the environment variables AWS_*"
            return MachineError(f"cannot call AWS: {type(error).__name__}", fix=fix)


def _translate_api_error(error: ClientError, service: str) -> BedplateError:
    details = error.response.get("Error", {})
    code, message = details.get("Code", ""), details.get("Message", "")
    action = iam_action(service, error.operation_name)
    if code in _EXPIRED:
        return _expired_credentials()
    if code in _UNKNOWN:
        fix = "log in again, check this machine's clock, and check that the region is enabled"
        return MachineError(f"{service} rejected the AWS credentials", fix=fix)
    if code == "OptInRequired":
        return MachineError("the region is not enabled in the account", fix="run `aws account enable-region`")
    if code in _DENIED:
        return Denied(f"permission denied: {action}", fix=f"allow {action} in the IAM policy of your role")
    if code in _THROTTLED:
        return PartialError(f"{service} throttles requests", fix="try again in a minute")
    if code in _NOT_THERE:
        return NotThere(f"{service}: the requested resource does not exist")
    if code in _NOT_CONNECTED:
        fix = "wait two minutes after its start; its agent needs a route to the internet or `endpoints: [ssm]`"
        return NotConnected("the instance is not connected to Systems Manager", fix=fix)
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_FAULT:
        fix = "try again later; health.aws.amazon.com lists outages"
        return PartialError(f"{service}: internal error of AWS", fix=fix)
    return PartialError(f"{action} failed: {code}: {message[:_LONGEST]}")


def _expired_credentials() -> MachineError:
    return MachineError("the AWS credentials have expired", fix="log in again with `aws sso login` or `aws login`")


# Seconds. Most calls take less than one; a region that does not respond is reported as an error.
_CONNECT, _READ = 5, 20
_ATTEMPTS = 4
# STS is asked first, for the account: without an answer a command ends within half a minute.
_FIRST, _FIRST_READ, _FIRST_ATTEMPTS = "sts", 10, 2
# Raised for a wrong call: a bug in bedplate, not an operator's error.
_DEFECTS = ParamValidationError


class Session(Protocol):
    """Creates clients: a session of boto3, or a fake in tests."""

    region_name: str | None
    """The region of the operator's settings."""

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:
        """Return a client of a service in a region."""


@dataclass(frozen=True, slots=True)
class AwsClient:
    """A thread-safe client of the account of the operator's credentials, for all regions."""

    session: Session
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: dict[tuple[str, str], BaseClient] = field(default_factory=dict)

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        """Make one call: `call("sts", "us-east-1", "get_caller_identity")`; raises BedplateError."""
        try:
            reply: dict[str, Any] = getattr(self._client(service, region), operation)(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise translate_error(error, service) from None
        return reply

    def find(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any] | None:  # noqa: ANN401
        """Make one call; return None if the requested resource does not exist."""
        try:
            return self.call(service, region, operation, **params)
        except NotThere:
            return None

    def pages(self, service: str, region: str, operation: str, **params: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        """Yield all pages of a listing; raises like `call`."""
        try:
            yield from self._client(service, region).get_paginator(operation).paginate(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise translate_error(error, service) from None

    def items(self, service: str, region: str, operation: str, key: str, **params: Any) -> Iterator[Any]:  # noqa: ANN401
        """Yield the entries under a key of a listing, on all pages; raises like `call`."""
        for page in self.pages(service, region, operation, **params):
            yield from page.get(key, ())

    def read_object(self, region: str, bucket: str, key: str, largest: int = LARGEST) -> bytes:
        """Return an object of a bucket; raises like `copy_object`."""
        data = BytesIO()
        self.copy_object(region, {"Bucket": bucket, "Key": key}, data, largest)
        return data.getvalue()

    def copy_object(self, region: str, place: Mapping[str, str], target: IO[bytes], largest: int = LARGEST) -> None:
        """Write an object to a file; raises like `call`, and TooLarge before it writes more than `largest` bytes."""
        left = largest
        with closing(self.call("s3", region, "get_object", **place)["Body"]) as body:
            try:
                for chunk in body.iter_chunks(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        what = f"s3://{place['Bucket']}/{place['Key']} is larger than {largest:,} bytes"
                        raise TooLarge(what, fix="find out who wrote it")
                    target.write(chunk)
            except BotoCoreError as error:
                raise translate_error(error, "s3") from None

    def endpoint(self, service: str, region: str) -> str:
        """Return the URL of a service in a region."""
        return str(self._client(service, region).meta.endpoint_url)

    def _client(self, service: str, region: str) -> BaseClient:
        # Sessions are not thread-safe; clients are.
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self.session.client(
                    service, region_name=region, config=_config(service)
                )
            return self._clients[service, region]


def _config(service: str) -> Config:
    read, attempts = (_FIRST_READ, _FIRST_ATTEMPTS) if service == _FIRST else (_READ, _ATTEMPTS)
    retries = {"mode": "standard", "total_max_attempts": attempts}
    return Config(connect_timeout=_CONNECT, read_timeout=read, retries=retries)


def open_session() -> Session:
    """Return a session with the operator's settings; MachineError for an unknown profile."""
    try:
        session: Session = boto3.session.Session()
    except BotoCoreError as error:
        raise translate_error(error, "sts") from None
    return session


def open_client() -> AwsClient:
    """Return a client with the operator's credentials; makes no call yet."""
    return AwsClient(open_session())


def caller_account(client: AwsClient, region: str) -> str:
    """Return the account of the credentials."""
    account: str = client.call("sts", region, "get_caller_identity")["Account"]
    return account


def check_account(client: AwsClient, account: str, region: str) -> None:
    """Compare the account of the credentials with the fleet's, before any other call; InputError if they differ."""
    actual = caller_account(client, region)
    if actual != account:
        raise InputError(
            f"the AWS credentials belong to account {actual}, but the fleet file has account {account}",
            fix=f"set AWS_PROFILE to a profile of account {account}, or correct `account`",
        )


_AT_A_TIME = 8

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RegionResults(Generic[Answer]):
    """The results by region, and the errors of regions that failed; both in the order of the requests."""

    successes: Mapping[str, Answer]
    failures: Mapping[str, BedplateError]


def ask_regions(regions: Iterable[str], ask: Callable[[str], Answer]) -> RegionResults[Answer]:
    """Call a function for every region, several in parallel; a failing region does not stop the others."""
    return RegionResults(*ask_each(regions, ask, _AT_A_TIME))


def require_all(answers: RegionResults[Answer], undone: str) -> Mapping[str, Answer]:
    """Return the results if all regions succeeded; else raise the first error with the messages of all regions.

    `undone` begins the message: the action that was not taken.
    """
    if not answers.failures:
        return answers.successes
    first = next(iter(answers.failures.values()))
    raise type(first)(f"{undone}: {'; '.join(failure_lines(answers.failures))}", fix=first.fix)


def failure_lines(failures: Mapping[str, BedplateError]) -> tuple[str, ...]:
    """Return a line for each distinct message: `us-east-1, us-west-2: message`."""
    ordered = sorted(failures, key=lambda name: failures[name].what)
    groups = groupby(ordered, key=lambda name: failures[name].what)
    return tuple(f"{', '.join(sorted(names))}: {what}" for what, names in groups)


DEAD = frozenset({"deleted", "deleting", "delete-complete", "delete in progress", "failed", "rejected", "expired"})


@dataclass(frozen=True, slots=True)
class Creation:
    """A resource whose creation has an unknown result; `tags` identify it among those of its type."""

    type: str
    region: str
    inputs: Mapping[str, Any]
    tags: Mapping[str, str]


Finder = Callable[[AwsClient, Creation], Iterable[str]]
"""Returns the ids of the objects that a creation can have made."""


def has_tags(creation: Creation, tags: Iterable[Mapping[str, str]]) -> bool:
    """Return whether an object has the tags of the resource; one of somebody else may have its name."""
    return creation.tags.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()


def is_live(description: Mapping[str, Any]) -> bool:
    """Return whether a described object exists; AWS lists deleted ones for a while."""
    state = description.get("State") or description.get("Status") or ""
    return str(state.get("Code", "") if isinstance(state, dict) else state).lower() not in DEAD


def filters(values: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """Return filters of a listing by their names; several values are alternatives."""
    return [
        {"Name": name, "Values": [value] if isinstance(value, str) else list(value)} for name, value in values.items()
    ]
