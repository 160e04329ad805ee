"""AWS Budgets: limits on cost or usage with notifications. A budget belongs to the account, not to a region."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Naming, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.calls import aws_names, deletes, renamed
from bedplate.rehearsal.kinds.limits import Choice, Text, check_nested, checks, tag_pairs
from bedplate.rehearsal.simulation import Aws

_LIMITS = {
    "name": Text(1, 100, r"[^:\\]+", "characters other than : and \\"),
    "timeUnit": Choice(("ANNUALLY", "CUSTOM", "DAILY", "MONTHLY", "QUARTERLY")),
    "budgetType": Choice(
        ("COST", "RI_COVERAGE", "RI_UTILIZATION", "SAVINGS_PLANS_COVERAGE", "SAVINGS_PLANS_UTILIZATION", "USAGE")
    ),
}
_NOTIFICATION = {
    "comparisonOperator": Choice(("EQUAL_TO", "GREATER_THAN", "LESS_THAN")),
    "notificationType": Choice(("ACTUAL", "FORECASTED")),
    "thresholdType": Choice(("ABSOLUTE_VALUE", "PERCENTAGE")),
}
_DATE = "%Y-%m-%d_%H:%M"  # the provider's date format
_END = datetime(2087, 6, 15, tzinfo=UTC)  # the default end of a budget


def _check(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_nested(inputs, "notifications", _NOTIFICATION)
    if (inputs.get("limitAmount") is None) != (inputs.get("limitUnit") is None):
        yield InvalidInput("limitUnit", "and limitAmount must be set together")


def _create(aws: Aws, inputs: Props) -> str:
    ident = f"{aws.account}:{inputs['name']}"
    _put_budget(aws, ident, inputs)
    return ident


def _put_budget(aws: Aws, ident: str, inputs: Props) -> None:
    account, _, name = ident.partition(":")
    notifications = [_notification(item) for item in inputs.get("notifications") or []]
    parameters = {"NotificationsWithSubscribers": notifications} if notifications else {}
    tags = {"ResourceTags": tag_pairs(inputs["tags"])} if inputs.get("tags") else {}
    call = {"AccountId": account, "Budget": _budget(name, inputs), **parameters, **tags}
    aws.call("budgets", "create_budget", **call)


def _notification(notification: Props) -> dict[str, Any]:
    subscribers = [("EMAIL", address) for address in notification.get("subscriberEmailAddresses") or []]
    subscribers += [("SNS", address) for address in notification.get("subscriberSnsTopicArns") or []]
    settings = renamed(notification, aws_names(*_NOTIFICATION))
    return {
        "Notification": {**settings, "Threshold": float(notification["threshold"])},
        "Subscribers": [{"SubscriptionType": kind, "Address": address} for kind, address in subscribers],
    }


def _budget(name: str, inputs: Props) -> dict[str, Any]:
    limit = {"Amount": str(inputs.get("limitAmount")), "Unit": inputs.get("limitUnit")}
    budget = {
        "BudgetName": name,
        **renamed(inputs, aws_names("budgetType", "timeUnit")),
        "TimePeriod": {"Start": _this_month(), "End": _END},
    }
    return {**budget, **({"BudgetLimit": limit} if inputs.get("limitAmount") else {})}


def _this_month() -> datetime:
    return datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    account, _, name = ident.partition(":")
    aws.call("budgets", "describe_budget", AccountId=account, BudgetName=name)
    return {
        "accountId": account,
        "arn": f"arn:aws:budgets::{account}:budget/{name}",
        "name": name,
        "timePeriodEnd": _END.strftime(_DATE),
        "timePeriodStart": _this_month().strftime(_DATE),
    }


_delete = deletes("budgets", "delete_budget", "AccountId", "BudgetName", separator=":")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    # moto has no UpdateBudget.
    _delete(aws, ident, old)
    _put_budget(aws, ident, new)


BUDGET = ResourceKind(
    token="aws:budgets/budget:Budget",
    inputs=updates("budgetType", "limitAmount", "limitUnit", "notifications", "tags", "timeUnit") | replaces("name"),
    computed=frozenset({"limitAmount", "limitUnit"}),
    sets=frozenset({"notifications"}),
    naming=Naming(longest=100),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=checks(_LIMITS, _check),
)
