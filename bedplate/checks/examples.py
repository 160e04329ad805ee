"""Values of the files in examples/ that a live fleet must not have."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bedplate.checks.context import Context
from bedplate.checks.diagnostics import Fault, Level, Rule, fault
from bedplate.spec import Fleet

EXAMPLE_VALUE = "E417"
_ACCOUNT = "111122223333"
# Each text, and what to write instead.
_FIXES = {
    _ACCOUNT: "write the number of your AWS account",
    "cr-0123456789abcdef0": "write the id of your reservation",
    "8.20.30.40": "write the public address of your gateway",
    "lab.example": "write your own domain",
    "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl": "write your own public key",
    "AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw": "write your own public key",
}


def check_examples(context: Context) -> Iterator[Fault]:
    """Yield a warning for each example value; none in a fleet with the account of the examples, which is one."""
    if context.fleet.account != _ACCOUNT:
        yield from _example_values("", context.fleet.model_dump(mode="json", exclude={"allow"}))


def live_faults(fleet: Fleet) -> Iterator[Fault]:
    """Yield an error for each example value, as a deployment needs it."""
    for warning in _example_values("", fleet.model_dump(mode="json", exclude={"allow"})):
        yield replace(warning, level=Level.ERROR)


def _example_values(key: str, value: object) -> Iterator[Fault]:
    """Yield the example values in a JSON value, each with its key."""
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, item in items:
            yield from _example_values(f"{key}.{name}".lstrip("."), item)
    elif isinstance(value, str):
        for text in _FIXES.keys() & {value, *value.replace("@", " ").split()}:
            noun = "the public key" if text.startswith("AAAA") else text
            yield fault(EXAMPLE_VALUE, key, f"{noun} is a value of the examples", _FIXES[text])


CHECKS = (check_examples,)
RULES = (
    Rule(
        EXAMPLE_VALUE,
        "example-value",
        "It belongs to nobody or to somebody else; `pulumi up` refuses it.",
        "write your own value",
        warns=True,
    ),
)
