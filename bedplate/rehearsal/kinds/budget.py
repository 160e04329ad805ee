"""AWS budgets: limits on cost or use, and who is told. They belong to the account, not to a region."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Text, beyond, chosen_name, inside, tag_pairs
from bedplate.rehearsal.simulation import Aws

_LIMITS = {
    "name": Text(1, 100, r"[^:\\]+", "no colon and no backslash"),
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
_DATE = "%Y-%m-%d_%H:%M"  # the provider's own form of a moment
_END = "2087-06-15_00:00"  # when a budget ends that is not told to


def _moment(text: str) -> datetime:
    return datetime.strptime(text, _DATE).replace(tzinfo=UTC)


def _start(inputs: Props) -> str:
    this_month = datetime.now(UTC).replace(day=1, hour=0, minute=0)
    return str(inputs.get("timePeriodStart") or this_month.strftime(_DATE))


def _period(inputs: Props) -> dict[str, datetime]:
    return {"Start": _moment(_start(inputs)), "End": _moment(inputs.get("timePeriodEnd") or _END)}


def _budget(name: str, inputs: Props) -> dict[str, Any]:
    limit = {"Amount": str(inputs.get("limitAmount")), "Unit": inputs.get("limitUnit")}
    types = {f"{key[0].upper()}{key[1:]}": value for key, value in (inputs.get("costTypes") or {}).items()}
    found = {
        "BudgetName": name,
        "BudgetType": inputs["budgetType"],
        "TimeUnit": inputs["timeUnit"],
        "TimePeriod": _period(inputs),
        "CostFilters": {one["name"]: one["values"] for one in inputs.get("costFilters") or []},
    }
    more = {"BudgetLimit": limit} if inputs.get("limitAmount") else {}
    return {**found, **more, **({"CostTypes": types} if types else {})}


def _notification(given: Props) -> dict[str, Any]:
    told = [("EMAIL", one) for one in given.get("subscriberEmailAddresses") or []]
    told += [("SNS", one) for one in given.get("subscriberSnsTopicArns") or []]
    about = {
        "NotificationType": given["notificationType"],
        "ComparisonOperator": given["comparisonOperator"],
        "Threshold": float(given["threshold"]),
        "ThresholdType": given["thresholdType"],
    }
    return {
        "Notification": about,
        "Subscribers": [{"SubscriptionType": kind, "Address": address} for kind, address in told],
    }


def _account(aws: Aws, inputs: Props) -> str:
    return str(inputs.get("accountId") or aws.account)


def _put(aws: Aws, name: str, inputs: Props) -> None:
    told = [_notification(one) for one in inputs.get("notifications") or []]
    more = {"NotificationsWithSubscribers": told} if told else {}
    tags = {"ResourceTags": tag_pairs(inputs["tags"])} if inputs.get("tags") else {}
    call = {"AccountId": _account(aws, inputs), "Budget": _budget(name, inputs), **more, **tags}
    aws.call("budgets", "create_budget", **call)


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs)
    _put(aws, name, inputs)
    return f"{_account(aws, inputs)}:{name}"


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    # moto has no UpdateBudget.
    _delete(aws, ident, old)
    _put(aws, ident.partition(":")[2], new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    account, _, name = ident.partition(":")
    aws.call("budgets", "describe_budget", AccountId=account, BudgetName=name)
    return {
        "accountId": account,
        "arn": f"arn:aws:budgets::{account}:budget/{name}",
        "name": name,
        "timePeriodStart": _start(inputs),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    account, _, name = ident.partition(":")
    aws.call("budgets", "delete_budget", AccountId=account, BudgetName=name)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from inside(inputs, "notifications", _NOTIFICATION)
    if (inputs.get("limitAmount") is None) != (inputs.get("limitUnit") is None):
        yield Complaint("limitUnit", "goes with limitAmount, and it with limitUnit")


BUDGET = Kind(
    token="aws:budgets/budget:Budget",
    inputs=updates("budgetType", "costFilters", "costTypes", "limitAmount", "limitUnit", "notifications")
    | updates("tags", "timePeriodEnd", "timePeriodStart", "timeUnit")
    | replaces("accountId", "name", "namePrefix"),
    defaults={"timePeriodEnd": _END},
    computed=frozenset({"accountId", "costFilters", "costTypes", "limitAmount", "limitUnit", "name", "namePrefix"})
    | {"timePeriodStart"},
    sets=frozenset({"costFilters", "notifications"}),
    naming=Naming(longest=100),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
