"""How each service of AWS says that it cannot serve a call just now: error codes, from the services' API references.

The codes that a client may send again after are those of the AWS SDKs' standard retry mode.
"""

from collections.abc import Mapping
from types import MappingProxyType

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.refusal import Refusal

NO_REPLY = "RequestError"

_THROTTLING: Mapping[str, str] = MappingProxyType(
    {
        "autoscaling": "Throttling",
        "cloudwatch": "Throttling",
        "ec2": "RequestLimitExceeded",
        "iam": "Throttling",
        "lambda": "TooManyRequestsException",
        "route53": "Throttling",
        "s3": "SlowDown",
        "sns": "ThrottledException",
        "sts": "Throttling",
    }
)
_INTERNAL: Mapping[str, str] = MappingProxyType(
    {
        "budgets": "InternalErrorException",
        "cloudwatch": "InternalServiceFault",
        "ec2": "InternalError",
        "efs": "InternalServerError",
        "iam": "ServiceFailure",
        "kms": "KMSInternalException",
        "logs": "ServiceUnavailableException",
        "route53resolver": "InternalServiceErrorException",
        "s3": "InternalError",
        "secretsmanager": "InternalServiceError",
        "sns": "InternalErrorException",
        "ssm": "InternalServerError",
    }
)
_ADDRESSLESS: Mapping[str, str] = MappingProxyType({"efs": "NoFreeAddressesInSubnet"})
# What the other services say: the codes common to all.
_COMMON_THROTTLING, _COMMON_INTERNAL = "ThrottlingException", "InternalFailure"
_COMMON_ADDRESSLESS = "InsufficientFreeAddressesInSubnet"
RETRYABLE = frozenset(
    {_COMMON_THROTTLING, _COMMON_INTERNAL, NO_REPLY, *_THROTTLING.values(), *_INTERNAL.values()}
    | {"RequestTimeout", "RequestTimeoutException", "PriorRequestNotComplete"}
)


class Unanswered(Refusal):
    """AWS did not serve a call however often it was sent: no word on what was asked for, unlike other refusals."""


def throttled(call: Call) -> Refusal:
    """Return a service's answer to more calls than it takes."""
    return Refusal(_THROTTLING.get(call.service, _COMMON_THROTTLING), f"the rate of {call.name} is exceeded")


def failed_inside(call: Call) -> Refusal:
    """Return a service's answer when something in it failed: HTTP status 500."""
    return Refusal(_INTERNAL.get(call.service, _COMMON_INTERNAL), f"an internal error has occurred in {call.name}")


def no_address(call: Call) -> Refusal:
    """Return a service's answer when a subnet has no address left."""
    code = _ADDRESSLESS.get(call.service, _COMMON_ADDRESSLESS)
    return Refusal(code, f"{call.name}: the subnet has not enough free addresses")


def no_answer(call: Call) -> Refusal:
    """Return what a client says when nothing answers at all; the code is the AWS SDK for Go's."""
    return Refusal(NO_REPLY, f"no endpoint of {call.service} in {call.region} answers")
