"""E8: what a fleet costs."""

from bedplate.checks.rules.rule import Rule

BUDGET_RULES = (
    Rule(
        "E801",
        "minimum-above-budget",
        "What is kept at all times is spent for certain.",
        "raise monthly, or keep fewer machines",
        "AWS price list",
        allowable=True,
    ),
    Rule(
        "W802",
        "budget-gone-in-a-day",
        "AWS tells of a cost up to a day after it.",
        "raise monthly, or lower the maximums",
        "AWS Budgets, best practices",
        allowable=True,
    ),
)
