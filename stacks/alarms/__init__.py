"""SNS topics for alarms, CloudWatch alarms on missing instances, and the budget of the account."""
