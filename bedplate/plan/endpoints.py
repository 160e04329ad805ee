"""What the words under `network.endpoints` come to: services of AWS, each with an interface in every zone."""

from collections.abc import Mapping
from types import MappingProxyType

from bedplate.spec import Fleet
from bedplate.spec.network import Endpoint

# As they follow `com.amazonaws.<region>.` in an endpoint's service name. A pull from ECR asks its API and its
# registry. Session Manager needs no `ec2messages` any more: the agent asks `ssmmessages` alone, nodes may use no
# other, and newer regions have no such endpoint. Source: AWS Systems Manager user guide, VPC endpoints, 2026-11.
SERVICES: Mapping[Endpoint, tuple[str, ...]] = MappingProxyType(
    {
        Endpoint.ECR: ("ecr.api", "ecr.dkr"),
        Endpoint.SSM: ("ssm", "ssmmessages"),
        Endpoint.STS: ("sts",),
        Endpoint.LOGS: ("logs",),
    }
)


def endpoint_services(fleet: Fleet) -> tuple[str, ...]:
    """Return the services that every region has endpoints of, in the order of the file."""
    return tuple(service for each in dict.fromkeys(fleet.network.endpoints) for service in SERVICES[each])
