"""The service-linked roles that AWS needs before the first resources of a fleet."""

from collections.abc import Iterable, Mapping

from bedplate.account.client import AwsClient, NotThere
from bedplate.errors import PartialError
from bedplate.plan import FleetPlan
from bedplate.plan.links import has_transit
from bedplate.spec.groups import Market


def service_roles(plan: FleetPlan) -> Mapping[str, str]:
    """Return the service-linked roles that a fleet needs, and the service of each.

    AWS would create them together with the first resource, which can fail then.
    """
    roles = {"AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com"}
    if any(pool.market is Market.SPOT for pool in plan.pools):
        roles["AWSServiceRoleForEC2Spot"] = "spot.amazonaws.com"
    if plan.files:
        roles["AWSServiceRoleForAmazonElasticFileSystem"] = "elasticfilesystem.amazonaws.com"
    if has_transit(plan):
        roles["AWSServiceRoleForVPCTransitGateway"] = "transitgateway.amazonaws.com"
    return roles


def missing_roles(client: AwsClient, region: str, roles: Iterable[str]) -> tuple[str, ...]:
    """Return the roles that the account does not have. IAM is global; the region only selects the endpoint."""
    return tuple(role for role in roles if not _exists(client, region, role))


def create_role(client: AwsClient, region: str, role: str, service: str) -> None:
    """Create a service-linked role; do nothing if it has been created since."""
    try:
        client.call("iam", region, "create_service_linked_role", AWSServiceName=service)
    except PartialError:
        if not _exists(client, region, role):
            raise


def _exists(client: AwsClient, region: str, role: str) -> bool:
    try:
        client.call("iam", region, "get_role", RoleName=role)
    except NotThere:
        return False
    return True
