"""The DNS domain of a fleet: private, at least two labels, each as RFC 1123 writes it."""

import re

from bedplate.spec.base import refusal
from bedplate.spec.shown import shown

LONGEST = 253
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def check_domain(domain: str) -> str:
    """Return the domain; a refusal that says which rule of RFC 1123 it breaks."""
    for broken, message in _faults(domain):
        if broken:
            raise refusal("E414", message, "write it as lab.internal")
    return domain


def _faults(domain: str) -> tuple[tuple[bool, str], ...]:
    labels = domain.split(".")
    bad = next((label for label in labels if not _LABEL.fullmatch(label)), None)
    return (
        (len(domain) > LONGEST, f"the domain has {len(domain)} characters; RFC 1123 allows {LONGEST}"),
        (bad == "", f"{shown(domain)} has an empty label"),
        (bad is not None, f"{shown(bad)} is no DNS label: 1 to 63 of a-z, 0-9 and inner hyphens (RFC 1123)"),
        (len(labels) == 1, f"{shown(domain)} is a single label; a domain has at least two"),
        (labels[-1].isdecimal(), f"{shown(domain)} ends in digits alone, so it reads as an address"),
        (labels[-1] in ("localhost", "local"), f".{labels[-1]} is reserved (RFC 6761, RFC 6762)"),
    )
