"""Endpoints of AWS services: each asked for once."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault


def check_endpoints(evidence: Evidence) -> Iterator[Fault]:
    """Tell services that are listed more than once."""
    asked = enumerate(evidence.fleet.network.endpoints)
    for key, endpoint, _ in repeated((f"network.endpoints.{index}", each) for index, each in asked):
        yield fault("E209", key, f"{endpoint.value} is listed twice")
