"""Mounts beside each other: one place has each path once, no mount lies in another, and none hides an export."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bedplate.checks.context import Evidence, repeated
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.ladders import undeclared_region
from bedplate.plan.pools import bucket_name
from bedplate.spec.sites import EfsStore, NfsStore, S3Store

# Every machine of the cloud mounts every store of the cloud, whatever the regions of both are.
_CLOUD = "the cloud"


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where one store is mounted: `place` is the cloud or a site, `machine` the one that exports and mounts nothing."""

    store: str
    place: str
    path: str
    machine: str = ""
    export: str = ""

    @property
    def key(self) -> str:
        """The key that says where."""
        return f"storage.{self.store}.mount"


def check_mounts(evidence: Evidence) -> Iterator[Fault]:
    """Tell mounts of one place that are in each other's way, and two exports of one folder."""
    mounts = tuple(_mounts(evidence))
    for key, (place, path), first in repeated((each.key, (each.place, each.path)) for each in mounts):
        yield fault("E403", key, f"{path} in {place} is the mount point of {first.split('.')[1]} too")
    exports = (each for each in mounts if each.export)
    folders = ((f"storage.{each.store}.export", (each.place, each.machine, each.export)) for each in exports)
    for key, (_, machine, folder), first in repeated(folders):
        yield fault("E409", key, f"{folder} of {machine} is exported for {first.split('.')[1]} too")
    for mount in mounts:
        yield from _nested(mount, [other for other in mounts if other.place == mount.place])


def lies_in(path: str, folder: str) -> bool:
    """Say whether a path is a folder or lies below it."""
    return f"{path}/".startswith(f"{folder}/")


def _mounts(evidence: Evidence) -> Iterator[_Mount]:
    for name, store in evidence.fleet.storage.items():
        if isinstance(store, EfsStore):
            yield _Mount(name, _CLOUD, store.mount)
        elif isinstance(store, NfsStore):
            yield _Mount(name, store.site, store.mount, store.machine, store.export)


def _nested(mount: _Mount, beside: Sequence[_Mount]) -> Iterator[Fault]:
    """Tell a mount that lies in another, or that hides what a machine of its site exports."""
    for other in beside:
        if mount.path != other.path and lies_in(mount.path, other.path):
            yield fault("E416", mount.key, f"{mount.path} lies in {other.path}, the mount point of {other.store}")
        elif other.export and other.machine != mount.machine and lies_in(other.export, mount.path):
            yield fault("E416", mount.key, f"{mount.path} hides {other.export}, which {other.machine} exports")


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


STORAGE_RULES = (
    Rule(
        "E401",
        "bucket-name",
        "S3 would refuse the bucket's name.",
        "rename the store",
        "Amazon S3, bucket naming rules",
        at_key=True,
    ),
    Rule("E402", "bad-path", "Paths end up in fstab and exports, unquoted.", "write a plain absolute path"),
    Rule("E403", "mount-twice", "One mount hides the other.", "mount one of them elsewhere"),
    Rule("E404", "system-path", "A mount there hides what the node needs to run.", "mount it elsewhere"),
    Rule(
        "E405",
        "reader-elsewhere",
        "Another account's role would need the bucket and its key to allow it: an exemption is not enough.",
        "name a role of the fleet's account, and let the other account's people take it on",
        "Amazon S3 user guide, cross-account access",
    ),
    Rule("E406", "unknown-site", "The file declares no such site.", "declare it under sites"),
    Rule("E407", "unknown-machine", "The site has no such machine.", "declare it in the site's machines"),
    Rule("E408", "region-twice", "A store has one bucket a region.", "delete one of them"),
    Rule("E409", "export-twice", "Two stores would share one folder.", "export another folder"),
    Rule(
        "E416",
        "mount-within",
        "A mount waits for the one that it lies in, and hides what lies in it.",
        "mount it elsewhere",
    ),
)
