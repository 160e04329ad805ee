"""Where the standard images of jobs are: repositories in ECR, and in registries of sites."""

from collections.abc import Iterable, Mapping

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan

RECIPES = ("base", "torch", "mpi")
ACCOUNTS_OF_AWS = ("602401143452", "763104351884")
"""AWS's accounts with images for Kubernetes, such as the EFA device plugin, and with its Deep Learning Containers.

Sources: Amazon EKS user guide, "View Amazon container image registries for Amazon EKS add-ons";
https://aws.github.io/deep-learning-containers, read 2026-11. Some regions have other accounts.
"""


def registry_hosts(plan: FleetPlan) -> Mapping[str, str]:
    """Return the registries of the images by the names in front of their repositories: a region's ECR, or an URL."""
    regions = plan.regions_by_name if plan.jobs.ecr else ()
    in_ecr = {f"{plan.account}.dkr.ecr.{region}.amazonaws.com": region for region in regions}
    return in_ecr | {url.partition("://")[2]: url for url in plan.jobs.registries}


def is_in_ecr(image: str, accounts: Iterable[str] = ("",)) -> bool:
    """Return whether an image is in ECR of some accounts, or of any."""
    registry = image.partition("/")[0]
    return ".dkr.ecr." in registry and registry.startswith(tuple(accounts))


def pulled_images(plan: FleetPlan, pools: Iterable[PoolPlan]) -> tuple[str, ...]:
    """Return the images in ECR of the jobs on some pools, which a machine image of these has."""
    images = {plan.jobs.images.get(pool.group, "") for pool in pools if pool.use.is_worker}
    return tuple(sorted(image for image in images if is_in_ecr(image, (plan.account, *ACCOUNTS_OF_AWS))))
