"""Conditions of a policy: which of them say who is meant, and which only look so."""

from collections.abc import Iterable

from bedplate.audit.address import block_of, is_wide
from bedplate.audit.value import Properties, is_seen, parts, words

# Keys of requests that say whose they are, in lower case. Source: AWS IAM user guide, global condition context keys.
_WHO = frozenset(
    {
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principalorgid",
        "aws:principalorgpaths",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceip",
        "aws:sourceorgid",
        "aws:sourceorgpaths",
        "aws:sourcevpc",
        "aws:sourcevpce",
        "aws:userid",
        "elasticfilesystem:accessedviamounttarget",
        "kms:calleraccount",
        "s3:dataaccesspointaccount",
        "sns:endpoint",
    }
)
_ARN_PARTS = 6
_ACCOUNT = 4
# How every id of a kind begins: a pattern of no more than that is everybody's. Source: AWS IAM user guide, unique ids.
_KINDS = frozenset({"AIDA", "AROA", "o-", "vpc-", "vpce-"})


def narrows(condition: Properties) -> bool:
    """Whether a condition leaves out the public. Each of its keys must hold, so one that does is enough."""
    return any(
        _is_strict(operator) and key.lower() in _WHO and _means_somebody(key.lower(), value)
        for operator, tests in condition.items()
        for one in parts(tests)
        for key, value in one.items()
    )


def _is_strict(operator: str) -> bool:
    """Whether a test fails where its key is missing, and asks what is so, not what is not."""
    name = operator.removeprefix("ForAnyValue:")
    return not (name.startswith("ForAllValues:") or name.endswith("IfExists") or "Not" in name or name == "Null")


def _means_somebody(key: str, value: object) -> bool:
    if not is_seen(value):
        return True
    if key == "elasticfilesystem:accessedviamounttarget":
        return value is True or words(value) == ("true",)
    told = words(value)
    if key == "aws:sourceip":
        return _is_someplace(told)
    return bool(told) and all(_is_named(word) for word in told)


def _is_someplace(texts: Iterable[str]) -> bool:
    blocks = tuple(map(block_of, texts))
    return bool(blocks) and not is_wide(block for block in blocks if block is not None)


def _is_named(word: str) -> bool:
    """Whether a pattern names somebody: an ARN whose account is any account, or any id of a kind, names nobody."""
    arn = word.split(":")
    if arn[0] == "arn":
        return len(arn) >= _ARN_PARTS and _is_one_account(arn[_ACCOUNT]) and bool(":".join(arn[_ACCOUNT:]).strip(":*?"))
    return word.strip("*?") not in {"", *_KINDS}


def _is_one_account(account: str) -> bool:
    return not {"*", "?"} & set(account)
