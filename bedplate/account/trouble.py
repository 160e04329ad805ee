"""What botocore raises, as an error of ours: what happened, and what the operator may do about it.

Passes on no text of a refusal that is about credentials or rights: such texts quote what was signed, and by whom.
"""

from collections.abc import Mapping
from types import MappingProxyType

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  botocore's own, which is no OSError
    CredentialRetrievalError,
    HTTPClientError,
    LoginError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from bedplate.errors import BedplateError, MachineError, PartError

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
