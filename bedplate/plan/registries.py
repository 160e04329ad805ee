"""Where the standard images of jobs are: repositories in ECR, and in registries of sites."""

import re
from collections.abc import Mapping

from bedplate.plan.fleet import FleetPlan

RECIPES = ("base", "torch", "mpi")


def registry_hosts(plan: FleetPlan) -> Mapping[str, str]:
    """Return the registries of the images by the names in front of their repositories: a region's ECR, or an URL."""
    regions = plan.regions_by_name if plan.jobs.ecr else ()
    in_ecr = {ecr_host(plan.account, region): region for region in regions}
    return in_ecr | {url.partition("://")[2]: url for url in plan.jobs.registries}


def ecr_host(account: str, region: str) -> str:
    """Return the name of the registry of an account in a region."""
    return f"{account}.dkr.ecr.{region}.amazonaws.com"


def parse_ecr_host(name: str) -> tuple[str, str]:
    """Return account and region of a registry in ECR; empty for another one."""
    match = re.fullmatch(ecr_host(r"(\d{12})", "([a-z0-9-]+)"), name)
    return (match[1], match[2]) if match else ("", "")
