"""What whoever logs in reads of shared storage: the folders that are there, and how data sets in S3 are had."""

from collections.abc import Iterable

from bedplate.plan.fleet import BucketPlan
from roles.shipped import Shipped
from roles.storage.buckets import variables
from roles.template import rendered

# Beside the message of the day, which is another role's. Source: pam_motd(8), `motd_dir`.
NOTICE = "/etc/motd.d/bedplate-storage"


def notice(paths: Iterable[str], buckets: Iterable[BucketPlan], *, holds_role: bool) -> Shipped:
    """Return the notice; without a role a machine opens no bucket, and people bring credentials of their own."""
    rows = variables(buckets)
    width = max((len(name) for name, _ in rows), default=0)
    text = rendered("storage/motd.j2", folders=sorted(paths), rows=rows, width=width, holds_role=holds_role)
    return Shipped("Notice of storage", NOTICE, text)
