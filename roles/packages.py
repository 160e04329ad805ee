"""Packages of a role, in one call of apt: lists are fetched only when something is missing, and nothing else goes."""

from collections.abc import Sequence

from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import apt

LISTS_SECONDS = 3600


def install(name: str, packages: Sequence[str], *, ends_apply: bool = True) -> OperationMeta:
    """Declare that packages are installed, without those that they merely recommend.

    A failure ends the apply, or is told at its end where nothing else waits for it.
    """
    missing = set(packages) - set(host.get_fact(DebPackages))
    return apt.packages(
        name=name,
        packages=list(packages),
        update=bool(missing),
        cache_time=LISTS_SECONDS,
        no_recommends=True,
        _ignore_errors=not ends_apply,
    )


def purge(name: str, packages: Sequence[str]) -> OperationMeta:
    """Declare that packages are not installed, with their settings gone."""
    return apt.packages(name=name, packages=list(packages), present=False, purge=True)
