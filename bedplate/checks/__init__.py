"""The checks of a fleet file: one module per topic, each with its rules, its check functions and their messages.

A topic module defines `Rule` constants (code, reason, fix) and `CHECKS` (functions from a context to faults);
`bedplate.checks.catalogue` collects them. Checks are pure functions of the fleet, its plan and facts about AWS.
"""
