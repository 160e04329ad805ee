"""The rules by which an S3 bucket moves and forgets what it holds, in the form that S3 wants them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, inside
from bedplate.rehearsal.kinds.tagging import tag_pairs
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

LIFECYCLE_DEFAULTS = {"transitionDefaultMinimumObjectSize": "all_storage_classes_128K"}
_ACTIONS = (
    "abortIncompleteMultipartUpload",
    "expiration",
    "noncurrentVersionExpiration",
    "noncurrentVersionTransitions",
    "transitions",
)
# S3 user guide, "Transitioning objects": a day is the least, and a month for infrequent access.
_CLASSES = ("DEEP_ARCHIVE", "GLACIER", "GLACIER_IR", "INTELLIGENT_TIERING", "ONEZONE_IA", "STANDARD_IA")
_AGES: Mapping[str, Mapping[str, Limit]] = {
    "abortIncompleteMultipartUpload": {"daysAfterInitiation": Number(1, math.inf)},
    "expiration": {"days": Number(1, math.inf)},
    "noncurrentVersionExpiration": {"noncurrentDays": Number(1, math.inf)},
    "noncurrentVersionTransitions": {"storageClass": Choice(_CLASSES)},
    "transitions": {"storageClass": Choice(_CLASSES)},
}
_IN_USE = {"ONEZONE_IA": 30, "STANDARD_IA": 30}  # days in which S3 moves nothing to these classes
_MOST_RULES, _LONGEST_NAME = 1000, 255


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    # A rule without a filter is for every object, which S3 wants said.
    chosen = dict(rule.get("filter") or {"prefix": rule.get("prefix") or ""})
    both = chosen.get("and")
    if both and both.get("tags"):
        chosen["and"] = {**both, "tags": tag_pairs(both["tags"])}
    return {**{key: value for key, value in rule.items() if key != "prefix"}, "filter": chosen}


def lifecycle_params(aws: Aws, inputs: Props) -> dict[str, Any]:
    """Return the parameters of the call that sets the rules."""
    shape = aws.shape("s3", "put_bucket_lifecycle_configuration")
    wanted = {"lifecycleConfiguration": {"rules": [_rule(rule) for rule in inputs["rules"]]}}
    return structure(shape, wanted, {})


def lifecycle_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Yield what S3 refuses of rules: too many, names that are too long or twice there, rules that do nothing."""
    rules = inputs.get("rules")
    if not is_known(rules):
        return
    names = [rule["id"] for rule in rules]
    if len(rules) > _MOST_RULES:
        yield Complaint("rules", f"a bucket has at most {_MOST_RULES} rules")
    for number, rule in enumerate(rules):
        if names.count(rule["id"]) > 1 or len(rule["id"]) > _LONGEST_NAME:
            yield Complaint(f"rules[{number}].id", f"{rule['id'][:40]} is there twice or too long")
        if rule.get("status") not in ("Enabled", "Disabled"):
            yield Complaint(f"rules[{number}].status", "expected one of ['Enabled', 'Disabled']")
        yield from _age_complaints(rule, number)
        if not any(rule.get(action) for action in _ACTIONS):
            yield Complaint(f"rules[{number}]", "MalformedXML: a rule has at least one action")


def _age_complaints(rule: Mapping[str, Any], number: int) -> Iterator[Complaint]:
    """Yield the ages at which a rule may not act, and the classes that there are not."""
    for action, limits in _AGES.items():
        for found in inside(rule, action, limits):
            yield Complaint(f"rules[{number}].{found.key}", found.reason)
    expiry = rule.get("expiration") or {}
    if sum(bool(expiry.get(key)) for key in ("date", "days", "expiredObjectDeleteMarker")) != 1 and expiry:
        yield Complaint(
            f"rules[{number}].expiration", "MalformedXML: give one of days, date, expiredObjectDeleteMarker"
        )
    for move in rule.get("transitions") or []:
        least = _IN_USE.get(str(move.get("storageClass")), 0)
        if move.get("days") is not None and move["days"] < least:
            yield Complaint(
                f"rules[{number}].transitions", f"to {move['storageClass']} at the earliest after {least} days"
            )
