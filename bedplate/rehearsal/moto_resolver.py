"""Faults of moto's Route 53 Resolver, mended while the simulation runs: rules can change, and quotas are ours."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from moto.route53resolver.models import ResolverEndpoint
from moto.route53resolver.responses import Route53ResolverResponse

from bedplate.rehearsal.replaced import replaced

# moto counts its endpoints wrongly, and in all of an account's simulated life; `quotas` counts what a stack holds.
_MOST_ENDPOINTS = 1_000_000
_CHANGES = {"Name": "name", "ResolverEndpointId": "resolver_endpoint_id", "TargetIps": "target_ips"}


@contextmanager
def mended_resolver() -> Iterator[None]:
    """Mend moto's resolver; put everything back as it was at the end."""
    with ExitStack() as repairs:
        repairs.enter_context(replaced(ResolverEndpoint, "MAX_ENDPOINTS_PER_REGION", _MOST_ENDPOINTS))
        repairs.enter_context(replaced(Route53ResolverResponse, "update_resolver_rule", _update_rule))
        yield


def _update_rule(response: Any) -> str:  # noqa: ANN401  # moto's own
    """Answer UpdateResolverRule, which moto lacks: what the call leaves out stays."""
    rule = response.route53resolver_backend.get_resolver_rule(response._get_param("ResolverRuleId"))  # noqa: SLF001
    config = response._get_param("Config")  # noqa: SLF001  # moto's way to a parameter
    for key in config.keys() & _CHANGES.keys():
        setattr(rule, _CHANGES[key], config[key])
    return json.dumps({"ResolverRule": rule.description()})
