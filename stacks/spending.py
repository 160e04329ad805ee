"""The budget of the account: who is told when the month's limit comes near."""

import pulumi
from pulumi_aws.budgets._inputs import BudgetNotificationArgs
from pulumi_aws.budgets.budget import Budget, BudgetArgs

from bedplate.plan.fleet import FleetPlan
from stacks.options import inside
from stacks.tags import named

# When somebody is told: the kind of sum, and the share of the limit in percent.
WARNINGS = (("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100))


class Spending(pulumi.ComponentResource):
    """A monthly budget of everything in the account, for what carries no tags costs too."""

    def __init__(self, plan: FleetPlan, limit: int, email: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("bedplate:stacks:Spending", plan.name, None, opts)
        args = BudgetArgs(
            name=plan.name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=f"{limit}.0",
            limit_unit="USD",
            notifications=[_warning(kind, share, email) for kind, share in WARNINGS],
            tags=named(plan.name),
        )
        Budget(plan.name, args, inside(self))
        self.register_outputs({})


def _warning(kind: str, share: int, email: str) -> BudgetNotificationArgs:
    return BudgetNotificationArgs(
        comparison_operator="GREATER_THAN",
        notification_type=kind,
        threshold=share,
        threshold_type="PERCENTAGE",
        subscriber_email_addresses=[email],
    )
