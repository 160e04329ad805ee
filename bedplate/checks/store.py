"""Stores: bucket names that S3 takes, mounts that hide nothing of the system, and sites and machines that exist."""

import re
from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.ladder import undeclared_region
from bedplate.checks.mount import lies_in
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.plan.names import bucket_name
from bedplate.spec.storage import EfsStore, NfsStore, S3Store

LONGEST_BUCKET = 63
# Amazon S3 user guide, bucket naming rules.
_RESERVED = re.compile(r"^(xn--|sthree-|amzn-s3-demo-)|(-s3alias|--ol-s3|--x-s3|--table-s3)$")
_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "scratch", "snap"}
    | {"sys", "tmp", "usr", "var"}
)
# What the roles install there is reached by what lies in /usr/local.
_OURS = ("/opt/bedplate-aws", "/opt/uv")


def check_stores(evidence: Evidence) -> Iterator[Fault]:
    """Tell what is wrong within each store."""
    for name, store in evidence.fleet.storage.items():
        key = f"storage.{name}"
        match store:
            case EfsStore():
                yield from undeclared_region(evidence, f"{key}.region", store.region)
                yield from _system_path(f"{key}.mount", store.mount)
            case S3Store():
                yield from _buckets(evidence, name, store)
                yield from _readers(evidence, name, store)
            case NfsStore():
                yield from _export(evidence, key, store)
                yield from _system_path(f"{key}.mount", store.mount)
                yield from _system_path(f"{key}.export", store.export)


def undeclared_site(evidence: Evidence, key: str, site: str) -> Iterator[Fault]:
    """Tell a site that the file uses without declaring it."""
    sites = evidence.declared.names("sites")
    if site not in sites:
        fix = f"write one of {', '.join(sorted(sites))}" if sites else ""
        yield fault("E406", key, f"{site} is no site of this file", fix)


def _buckets(evidence: Evidence, name: str, store: S3Store) -> Iterator[Fault]:
    fleet = evidence.fleet
    regions = tuple((f"storage.{name}.regions.{index}", region) for index, region in enumerate(store.regions))
    for key, region, _ in repeated(regions):
        yield fault("E408", key, f"{region} is listed twice")
    for key, region in regions:
        yield from undeclared_region(evidence, key, region)
    names = [bucket_name(fleet.name, name, fleet.account, region) for region in store.regions]
    longest = max(names, key=len)
    if len(longest) > LONGEST_BUCKET:
        message = f"the bucket {longest} has {len(longest)} characters; S3 allows {LONGEST_BUCKET}"
        yield fault("E401", f"storage.{name}", message, "shorten the store's name or the fleet's")
    elif _RESERVED.search(longest):
        yield fault("E401", f"storage.{name}", f"S3 keeps names like {longest} to itself")


def _readers(evidence: Evidence, name: str, store: S3Store) -> Iterator[Fault]:
    for index, reader in enumerate(store.readers):
        account = reader.split(":")[4]
        if account != evidence.fleet.account:
            yield fault("E405", f"storage.{name}.readers.{index}", f"{reader} is a role of another account, {account}")


def _export(evidence: Evidence, key: str, store: NfsStore) -> Iterator[Fault]:
    yield from undeclared_site(evidence, f"{key}.site", store.site)
    machines = evidence.declared.names("sites", store.site, "machines")
    if store.site in evidence.declared.names("sites") and store.machine not in machines:
        fix = f"write one of {', '.join(sorted(machines))}" if machines else ""
        yield fault("E407", f"{key}.machine", f"{store.site} has no machine {store.machine}", fix)


def _system_path(key: str, path: str) -> Iterator[Fault]:
    if path.split("/")[1] in _SYSTEM or any(lies_in(path, own) or lies_in(own, path) for own in _OURS):
        yield fault("E404", key, f"{path} belongs to the system")
