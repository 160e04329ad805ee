"""A fault in what is read: the table of rules is read when there is one, for a sound file has none to tell."""

from bedplate.checks.fault import Fault


def fault(code: str, key: str, message: str, fix: str = "") -> Fault:
    """Return a fault under the rule of that code; as `bedplate.checks.rules.fault`."""
    from bedplate.checks.rules import fault as under_rule  # noqa: PLC0415  # a tenth of `vpn add`'s own time

    return under_rule(code, key, message, fix)
