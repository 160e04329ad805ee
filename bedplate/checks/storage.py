"""Storage: regions, buckets, exports, and mount points that do not conflict."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from bedplate.checks.diagnostics import Context, one_of, repeated
from bedplate.checks.ladders import check_declared_region
from bedplate.permissions import LONGEST_INLINE, length, role_policies
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import bucket_name
from bedplate.plan.stores import ISSUER_STORE, NODES_STORE
from bedplate.rules import Fault, Rule, fault
from bedplate.spec.sites import EfsStore, NfsStore, S3Store

# Every cloud machine mounts every EFS store, whatever their regions.
_CLOUD = "the cloud"


@dataclass(frozen=True, slots=True)
class _Mount:
    """The mount of one store: `place` is the cloud or a site; `machine` exports `export` and does not mount it."""

    store: str
    place: str
    path: str
    machine: str = ""
    export: str = ""

    @property
    def key(self) -> str:
        """The key of the mount point."""
        return f"storage.{self.store}.mount"


def check_mounts(context: Context) -> Iterator[Fault]:
    """Yield faults of conflicting mount points in one place, and of folders that two stores export."""
    mounts = tuple(_mounts(context))
    for key, (place, path), first in repeated((mount.key, (mount.place, mount.path)) for mount in mounts):
        yield fault(
            DUPLICATE_MOUNT, key, f"{path} in {place} is already the mount point of the store {first.split('.')[1]}"
        )
    exports = (mount for mount in mounts if mount.export)
    folders = ((f"storage.{mount.store}.export", (mount.place, mount.machine, mount.export)) for mount in exports)
    for key, (_, machine, folder), first in repeated(folders):
        yield fault(DUPLICATE_EXPORT, key, f"{machine} already exports {folder} for {first.split('.')[1]}")
    for mount in mounts:
        yield from _check_nesting(mount, [other for other in mounts if other.place == mount.place])


def check_checkpoints(context: Context) -> Iterator[Fault]:
    """Yield a fault if the store of checkpoints is none that machines mount."""
    stores, name = context.fleet.storage, context.fleet.jobs.checkpoints
    mounted = [store for store, spec in stores.items() if not isinstance(spec, S3Store)]
    if name is not None and name not in mounted:
        what = f"{name} is a bucket" if name in stores else f"no store is named {name}"
        yield fault(CHECKPOINT_STORE, "jobs.checkpoints", what, one_of(mounted))


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or is below it."""
    return f"{path}/".startswith(f"{folder}/")


def _mounts(context: Context) -> Iterator[_Mount]:
    for name, store in context.fleet.storage.items():
        match store:
            case EfsStore():
                yield _Mount(name, _CLOUD, store.mount)
            case NfsStore():
                yield _Mount(name, store.site, store.mount, store.machine, store.export)
            case S3Store():
                pass
            case _:
                assert_never(store)


def _check_nesting(mount: _Mount, others: Sequence[_Mount]) -> Iterator[Fault]:
    """Yield a fault if a mount is below another, or hides a folder that a machine of its site exports."""
    for other in others:
        if mount.path != other.path and is_within(mount.path, other.path):
            yield fault(
                NESTED_MOUNT, mount.key, f"{mount.path} is below {other.path}, the mount point of {other.store}"
            )
        elif other.export and other.machine != mount.machine and is_within(other.export, mount.path):
            yield fault(NESTED_MOUNT, mount.key, f"{mount.path} hides {other.export}, which {other.machine} exports")


LONGEST_BUCKET = 63
# Amazon S3 user guide, bucket naming rules.
_RESERVED = re.compile(r"^(xn--|sthree-|amzn-s3-demo-)|(-s3alias|--ol-s3|--x-s3|--table-s3)$")
_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "scratch", "snap"}
    | {"sys", "tmp", "usr", "var"}
)
# Roles install programs there that /usr/local links to.
_BEDPLATE_FOLDERS = ("/opt/bedplate-aws", "/opt/uv")


def check_stores(context: Context) -> Iterator[Fault]:
    """Yield faults within each store."""
    for name, store in context.fleet.storage.items():
        key = f"storage.{name}"
        match store:
            case EfsStore():
                yield from check_declared_region(context, f"{key}.region", store.region)
                yield from _check_path(f"{key}.mount", store.mount)
            case S3Store():
                yield from _check_buckets(context, name, store)
                yield from _check_readers(context, name, store)
            case NfsStore():
                yield from check_declared_machine(context, key, store.site, store.machine)
                yield from _check_path(f"{key}.mount", store.mount)
                yield from _check_path(f"{key}.export", store.export)
            case _:
                assert_never(store)


def check_declared_site(context: Context, key: str, site: str) -> Iterator[Fault]:
    """Yield a fault if the file does not declare a site."""
    sites = context.declared.names("sites")
    if site not in sites:
        yield fault(UNKNOWN_SITE, key, f"the file has no site {site}", one_of(sites))


_TAKEN = {NODES_STORE: "the bundles of nodes", ISSUER_STORE: "the public keys of the cluster"}


def _check_buckets(context: Context, name: str, store: S3Store) -> Iterator[Fault]:
    fleet = context.fleet
    regions = tuple((f"storage.{name}.regions.{index}", region) for index, region in enumerate(store.regions))
    for key, region, _ in repeated(regions):
        yield fault(DUPLICATE_REGION, key, f"{region} is listed twice")
    for key, region in regions:
        yield from check_declared_region(context, key, region)
    buckets = [bucket_name(fleet.name, name, fleet.account, region) for region in store.regions]
    longest = max(buckets, key=len)
    if len(longest) > LONGEST_BUCKET:
        message = f"the bucket name {longest} has {len(longest)} characters; S3 allows {LONGEST_BUCKET}"
        yield fault(BUCKET_NAME, f"storage.{name}", message, "shorten the name of the store or of the fleet")
    elif _RESERVED.search(longest):
        yield fault(BUCKET_NAME, f"storage.{name}", f"S3 reserves bucket names like {longest}")
    elif name in _TAKEN:
        yield fault(BUCKET_NAME, f"storage.{name}", f"the bucket name {longest} belongs to {_TAKEN[name]}")


def _check_readers(context: Context, name: str, store: S3Store) -> Iterator[Fault]:
    for index, reader in enumerate(store.readers):
        account = reader.split(":")[4]
        if account != context.fleet.account:
            yield fault(
                READER_OF_OTHER_ACCOUNT,
                f"storage.{name}.readers.{index}",
                f"{reader} is a role of another account, {account}",
            )


def check_declared_machine(context: Context, key: str, site: str, machine: str) -> Iterator[Fault]:
    """Yield a fault if the file does not declare a site, or a machine there."""
    yield from check_declared_site(context, f"{key}.site", site)
    machines = context.declared.names("sites", site, "machines")
    if site in context.declared.names("sites") and machine not in machines:
        yield fault(UNKNOWN_MACHINE, f"{key}.machine", f"{site} has no machine {machine}", one_of(machines))


def _check_path(key: str, path: str) -> Iterator[Fault]:
    if path.split("/")[1] in _SYSTEM or any(is_within(path, own) or is_within(own, path) for own in _BEDPLATE_FOLDERS):
        message = f"the operating system or bedplate uses {path}"
        yield fault(SYSTEM_PATH, key, message, f"write a path outside it, such as /data/{path.rpartition('/')[2]}")


def check_policies(plan: FleetPlan) -> Iterator[Fault]:
    """Yield a fault for a role whose inline policies are longer than IAM allows: they grow with stores and regions."""
    for role, texts in role_policies(plan):
        if (count := length(texts)) > LONGEST_INLINE:
            message = f"the policies of the role {role} have {count:,} characters; IAM allows {LONGEST_INLINE:,}"
            yield fault(LONG_POLICY, "storage" if plan.buckets else "regions", message)


CHECKS = (check_stores, check_mounts, check_checkpoints)
_rule = partial(Rule, section="storage")
CHECKPOINT_STORE = Rule(
    "E648",
    "A job that starts again reads its checkpoints as files.",
    "write the name of an efs or nfs store",
    section="jobs",
)
BUCKET_NAME = _rule(
    "E401",
    "S3 would reject the name of the bucket, or bedplate uses it.",
    "rename the store",
    "Amazon S3, bucket naming rules",
    at_key=True,
)
DUPLICATE_MOUNT = _rule("E403", "One mount hides the other.", "use another mount point for one of the two")
SYSTEM_PATH = _rule("E404", "A mount there hides files that the node needs.", "write another path, such as /data")
READER_OF_OTHER_ACCOUNT = _rule(
    "E405",
    "A role of another account also needs permission in the policies of the bucket and its key.",
    "write a role of the fleet's account that people of the other account may assume",
    "Amazon S3 user guide, cross-account access",
)
UNKNOWN_SITE = _rule("E406", "The site must be declared in this file.", "declare it under sites")
UNKNOWN_MACHINE = _rule("E407", "The machine must be declared at the site.", "declare it in the site's machines")
DUPLICATE_REGION = _rule("E408", "A store has one bucket per region.", "delete one of the two")
DUPLICATE_EXPORT = _rule("E409", "Two stores cannot share a folder.", "write another folder for one of the two")
NESTED_MOUNT = _rule(
    "E416", "A nested mount waits for the outer one, and hides files in it.", "write a mount point outside it"
)
LONG_POLICY = Rule(
    "E422",
    "IAM limits the inline policies of a role to 10,240 characters. They name each store, and the regions.",
    "declare fewer stores or regions, or shorter names of stores",
    "IAM and STS quotas",
)
