"""Alarms, the topics that they notify, and the budget of the account."""
