"""What botocore raises, as an error of ours: what happened, and what the operator may do about it.

Passes on no text of a refusal that is about credentials or rights: such texts quote what was signed, and by whom.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
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
from botocore.parsers import ResponseParserError

from bedplate.errors import BedplateError, InputError, MachineError, PartError

_LONGEST = 200
_SERVER_FAULT = 500


class NoCredentials(MachineError):
    """This machine has no credentials of any account."""


class NotThere(PartError):
    """AWS does not know what was asked for."""


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
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_THROTTLED = (
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
)
_NOT_THERE = (
    "NoSuchResourceException",
    "ParameterNotFound",
    "ParameterVersionNotFound",
    "ResourceNotFoundException",
)
# The prefix of a service's actions in a policy, where it is not the service's name at boto3.
_PREFIXES: Mapping[str, str] = MappingProxyType({"service-quotas": "servicequotas"})


def trouble(error: BotoCoreError | ClientError, service: str) -> BedplateError:
    """Return what a failed call of a service tells the operator."""
    if isinstance(error, ClientError):
        return _refused(error, service)
    match error:
        case NoCredentialsError():
            return NoCredentials("there are no AWS credentials here", fix="log in, or set AWS_PROFILE")
        case PartialCredentialsError():
            return MachineError("the AWS credentials here are not complete", fix="give key and secret key together")
        case ProfileNotFound():
            known = "`aws configure list-profiles` lists those that there are"
            return MachineError("AWS_PROFILE names a profile that there is not", fix=known)
        case SSOError() | LoginError() | TokenRetrievalError() | CredentialRetrievalError():
            return _expired()
        case HTTPClientError() | ConnectionError():
            fix = f"{service} is asked over HTTPS: look at this machine's network, proxy and certificates"
            return MachineError(f"{service} cannot be reached", fix=fix)
        case ResponseParserError():
            return MachineError(f"who answers for {service} is not AWS", fix="look for a proxy that answers itself")
        case _:
            fix = "look at ~/.aws/config and at the variables AWS_*"
            return MachineError(f"AWS cannot be asked from here: {type(error).__name__}", fix=fix)


def _refused(error: ClientError, service: str) -> BedplateError:
    told = error.response.get("Error", {})
    code, message = told.get("Code", ""), told.get("Message", "")
    action = f"{_PREFIXES.get(service, service)}:{error.operation_name}"
    if code in _EXPIRED:
        return _expired()
    if code in _UNKNOWN:
        fix = "log in anew; look at this machine's clock; a region that is not enabled answers like this too"
        return MachineError(f"{service} does not take these credentials", fix=fix)
    if code == "OptInRequired":
        return MachineError("the account has not enabled it", fix="enable it: `aws account enable-region`")
    if code in _DENIED:
        return MachineError(f"these credentials may not call {action}", fix=f"allow {action} to whom you work as")
    if code in _THROTTLED:
        return PartError(f"{service} takes no more requests for now", fix="run it again in a minute")
    if code in _NOT_THERE:
        return NotThere(f"{service} does not know what was asked for")
    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_FAULT:
        return PartError(
            f"{service} fails inside AWS", fix="run it again later; health.aws.amazon.com tells of outages"
        )
    return PartError(f"AWS refuses {action}: {code}: {message[:_LONGEST]}")


def _expired() -> MachineError:
    return MachineError(
        "the AWS credentials here have expired", fix="log in anew, for instance by `aws sso login` or `aws login`"
    )


# Seconds; most calls are answered within one; a region that is silent is told, not waited for.
_CONNECT, _READ = 5, 20
_ATTEMPTS = 4
# What boto3 would raise of a call that we have made wrongly: a defect, not an operator's matter.
_DEFECTS = ParamValidationError


class Session(Protocol):
    """What makes clients: boto3's own session, or one whose answers are known."""

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:
        """Return a client of a service in a region."""


@dataclass(frozen=True, slots=True)
class Door:
    """The account that the operator's credentials belong to, in all its regions; may be used from many threads."""

    session: Session
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: dict[tuple[str, str], BaseClient] = field(default_factory=dict)

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        """Make one call, `call("sts", "us-east-1", "get_caller_identity")`; raises BedplateError as `trouble` does."""
        try:
            reply: dict[str, Any] = getattr(self._client(service, region), operation)(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise trouble(error, service) from None
        return reply

    def pages(self, service: str, region: str, operation: str, **params: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        """Yield the pages of a listing, to the last one; raises as `call` does."""
        try:
            yield from self._client(service, region).get_paginator(operation).paginate(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise trouble(error, service) from None

    def _client(self, service: str, region: str) -> BaseClient:
        # A session is not safe for threads, its clients are.
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self.session.client(service, region_name=region, config=_config())
            return self._clients[service, region]


def _config() -> Config:
    retries = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
    return Config(connect_timeout=_CONNECT, read_timeout=_READ, retries=retries)


def opened_session() -> Session:
    """Return the session of the operator's own settings; MachineError when they name a profile that there is not."""
    try:
        session: Session = boto3.session.Session()
    except BotoCoreError as error:
        raise trouble(error, "sts") from None
    return session


def open_door() -> Door:
    """Return the door of the operator's own credentials; nothing is asked yet."""
    return Door(opened_session())


def check_account(door: Door, account: str, region: str) -> None:
    """Ask whose credentials these are, before anything else is asked; InputError when they are another account's."""
    theirs = door.call("sts", region, "get_caller_identity")["Account"]
    if theirs != account:
        raise InputError(
            f"these credentials are of account {theirs}, and the fleet file names account {account}",
            fix="set AWS_PROFILE to a profile of the fleet's account, or correct `account`",
        )


_AT_A_TIME = 8

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Answers(Generic[Answer]):
    """What each region answered, and why the others did not; both in the order in which they were asked."""

    given: Mapping[str, Answer]
    failures: Mapping[str, BedplateError]


def ask_regions(regions: Iterable[str], ask: Callable[[str], Answer]) -> Answers[Answer]:
    """Ask every region, a few at a time; a region that fails keeps none from answering."""
    names = tuple(dict.fromkeys(regions))
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        told = dict(zip(names, pool.map(lambda name: _asked(ask, name), names), strict=True))
    return Answers(
        given={name: one.answer for name, one in told.items() if isinstance(one, _Given)},
        failures={name: one for name, one in told.items() if isinstance(one, BedplateError)},
    )


def every_answer(answers: Answers[Answer], undone: str) -> Mapping[str, Answer]:
    """Return the answers where all regions gave one; else raise the first failure's error, naming every region.

    `undone` says what was therefore not done.
    """
    if not answers.failures:
        return answers.given
    first = next(iter(answers.failures.values()))
    raise type(first)(f"{undone}: {'; '.join(failure_lines(answers.failures))}", fix=first.fix)


def failure_lines(failures: Mapping[str, BedplateError]) -> tuple[str, ...]:
    """Return `us-west-2, us-east-1: what happened`, a line a reason."""
    ordered = sorted(failures, key=lambda name: failures[name].what)
    alike = groupby(ordered, key=lambda name: failures[name].what)
    return tuple(f"{', '.join(sorted(names))}: {what}" for what, names in alike)


@dataclass(frozen=True, slots=True)
class _Given(Generic[Answer]):
    answer: Answer


def _asked(ask: Callable[[str], Answer], region: str) -> _Given[Answer] | BedplateError:
    try:
        return _Given(ask(region))
    except BedplateError as error:
        return error
